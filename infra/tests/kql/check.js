// Prints what Microsoft's parser has against each query in a folder, a line each: `node check.js FOLDER`.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

// The library is made for browsers: its files define globals.
const library = path.dirname(require.resolve("@kusto/language-service-next/package.json"));
for (const file of ["bridge.min.js", "Kusto.Language.Bridge.min.js"]) {
  vm.runInThisContext(fs.readFileSync(path.join(library, file), "utf8"), { filename: file });
}
const { GlobalState, KustoCode, Symbols } = globalThis.Kusto.Language;

// The columns that the queries use.
// https://learn.microsoft.com/azure/azure-monitor/reference/tables/syslog, …/heartbeat, …/azuremetrics
const tables = {
  Syslog:
    "(TimeGenerated: datetime, Computer: string, Facility: string, SeverityLevel: string, ProcessName: string, " +
    "SyslogMessage: string, HostName: string)",
  AzureMetrics:
    "(TimeGenerated: datetime, MetricName: string, Resource: string, ResourceId: string, Average: real, Maximum: real)",
  Heartbeat: "(TimeGenerated: datetime, Computer: string, OSType: string)",
};
const symbols = Object.entries(tables).map(([name, schema]) => Symbols.TableSymbol.From(schema).WithName(name));
const workspace = GlobalState.Default.WithDatabase(new Symbols.DatabaseSymbol.ctor("workspace", symbols));

const folder = process.argv[2];
for (const file of fs.readdirSync(folder).sort()) {
  const query = fs.readFileSync(path.join(folder, file), "utf8");
  const found = KustoCode.ParseAndAnalyze(query, workspace).GetDiagnostics();
  for (let i = 0; i < found.Count; i++) {
    const { Code, Message, Start, Length } = found.getItem(i);
    console.log(`${file}: ${Code} ${Message}: ${JSON.stringify(query.slice(Start, Start + Math.min(Length, 60)))}`);
  }
}
