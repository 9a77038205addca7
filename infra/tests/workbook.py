"""Builds the workbook from the query files, so that a query stands in one place."""

import json

# Title, query file, how it is shown.
PARTS = [
    ("VMs", "vms", "timechart"),
    ("Announced evictions by hour", "evictions-by-hour", "barchart"),
    ("Drains", "drains", "table"),
    ("Milliseconds from a notice to the last released message", "drain-times", "timechart"),
    ("Drains that abandoned messages or jobs", "abandoned-drains", "barchart"),
    ("Messages", "queue-depth", "timechart"),
    ("Minutes that the oldest message has waited", "oldest-message", "timechart"),
    ("Jobs in the poison queues", "poison", "timechart"),
    ("Deliveries by outcome, of one worker on each VM", "outcomes", "barchart"),
    ("Jobs that moved to regular VMs", "escalations", "table"),
    ("Lines of the workers", "logs", "table"),
]


def build(queries):
    items = [
        {
            "type": 9,
            "content": {
                "version": "KqlParameterItem/1.0",
                "parameters": [
                    {
                        "id": "6f0d4ae2-52f6-4c52-8f0e-0a7b3f3f2b11",
                        "version": "KqlParameterItem/1.0",
                        "name": "Time",
                        "type": 4,
                        "isRequired": True,
                        "value": {"durationMs": 86400000},
                        "typeSettings": {
                            "selectableValues": [{"durationMs": ms} for ms in (3600000, 14400000, 86400000, 604800000)]
                        },
                    }
                ],
            },
            "name": "time",
        }
    ]
    for title, name, shown in PARTS:
        items.append(
            {
                "type": 3,
                "content": {
                    "version": "KqlItem/1.0",
                    "query": queries[name],
                    "size": 0,
                    "title": title,
                    "timeContextFromParameter": "Time",
                    "queryType": 0,
                    "resourceType": "microsoft.operationalinsights/workspaces",
                    "visualization": shown,
                },
                "name": name,
            }
        )
    schema = "https://github.com/Microsoft/Application-Insights-Workbooks/blob/master/schema/workbook.json"
    return (
        json.dumps({"version": "Notebook/1.0", "items": items, "isLocked": False, "$schema": schema}, indent=2) + "\n"
    )
