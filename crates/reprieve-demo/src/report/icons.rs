//! The report's few signs, drawn once and used by name: they look the same whatever fonts there are.

use maud::{Markup, PreEscaped, html};

/// A frame was finished.
pub(super) const DONE: Icon = Icon("done");
/// A job was handed back.
pub(super) const BACK: Icon = Icon("back");
/// A VM was killed, or a job cut off by that.
pub(super) const KILL: Icon = Icon("kill");
/// A notice was given.
pub(super) const NOTICE: Icon = Icon("notice");

/// A sign, which says nothing to a screen reader: there are always words beside it.
#[derive(Clone, Copy)]
pub(super) struct Icon(&'static str);

impl maud::Render for Icon {
    fn render(&self) -> Markup {
        html! {
            svg class={ "icon " (self.0) } viewBox="0 0 16 16" aria-hidden="true" {
                use href={ "#icon-" (self.0) } {}
            }
        }
    }
}

/// What the icons refer to: once per page, ahead of them.
pub(super) fn sheet() -> Markup {
    PreEscaped(
        r#"<svg width="0" height="0" aria-hidden="true" class="sheet"><defs>
<symbol id="icon-done" viewBox="0 0 16 16">
<path d="M3 8.5 6.5 12 13 4.5" fill="none" stroke="currentColor" stroke-width="2.4"/>
</symbol>
<symbol id="icon-back" viewBox="0 0 16 16">
<path d="M6.5 3 3 6.5 6.5 10M3 6.5h6a3.5 3.5 0 0 1 0 7H6" fill="none" stroke="currentColor" stroke-width="2"/>
</symbol>
<symbol id="icon-kill" viewBox="0 0 16 16">
<path d="m3.5 3.5 9 9m0-9-9 9" fill="none" stroke="currentColor" stroke-width="2.6"/>
</symbol>
<symbol id="icon-notice" viewBox="0 0 16 16">
<path d="M8 1 15.5 15H.5Z" fill="currentColor"/>
<path d="M8 5.5v5m0 1.3v1.7" stroke="var(--page)" stroke-width="1.8"/>
</symbol>
</defs></svg>"#
            .to_owned(),
    )
}
