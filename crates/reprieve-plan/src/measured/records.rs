//! Records of a CSV file by RFC 4180: cells may be in quotes, and have line breaks then.

/// Splits a text into records of cells. A quote that is not closed ends with the text.
pub(super) fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut characters) = (false, text.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut cell)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut cell));
                records.push(std::mem::take(&mut record));
            }
            other => cell.push(other),
        }
    }
    if !cell.is_empty() || !record.is_empty() {
        record.push(cell);
        records.push(record);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::records;

    #[test]
    fn cells_may_have_commas_quotes_and_lines() {
        assert_eq!(records("a,b\r\n\"c,\"\"d\"\"\",\"e\r\nf\"\r\n"), [["a", "b"], ["c,\"d\"", "e\r\nf"]]);
        assert_eq!(records("a,\n,b"), [["a", ""], ["", "b"]]);
        assert!(records("").is_empty());
        assert_eq!(records("\"open,\n"), [["open,\n"]]);
    }
}
