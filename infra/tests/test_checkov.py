"""The evaluated templates through checkov, where it is on PATH; INFRA_TESTS_NEED_CHECKOV=1 makes it needed."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

import evaluator
from snapshots import FILES, INFRA
from test_bicep import checker, require

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"


class Scanner(unittest.TestCase):
    """What it finds is mended, or argued in checkov.yaml."""

    def test_checkov_finds_nothing_that_is_not_argued(self):
        require(self, "checkov on PATH", shutil.which("checkov"), os.environ.get("INFRA_TESTS_NEED_CHECKOV") == "1")
        checker(self)
        with tempfile.TemporaryDirectory() as folder:
            for name, path in FILES.items():
                resources = [
                    {k: v for k, v in r.items() if k != "id"} for r in evaluator.evaluate(str(INFRA / path))[0]
                ]
                template = {
                    "$schema": SCHEMA,
                    "contentVersion": "1.0.0.0",
                    "parameters": {},
                    "resources": resources,
                    "outputs": {},
                }
                with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as file:
                    json.dump(template, file, indent=1)
            command = [
                "checkov",
                "--config-file",
                str(INFRA / "checkov.yaml"),
                "--directory",
                folder,
                "--output",
                "json",
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            report = json.loads(done.stdout)
            found = [f"{c['check_id']} {c['check_name']}: {c['resource']}" for c in report["results"]["failed_checks"]]
            self.assertEqual(found, [])
            self.assertEqual(report["summary"]["parsing_errors"], 0)
            self.assertGreater(report["summary"]["passed"], 50)


if __name__ == "__main__":
    unittest.main()
