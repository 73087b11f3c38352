"""Validates answers of a node by its OpenAPI document.

Arguments: the document, and a list of {method, path, body, wrong?}. The schemas of answers admit
further fields, which later versions may have; here they are refused.
"""

import json
import sys

from jsonschema import Draft202012Validator


def strict(node):
    if isinstance(node, dict):
        for value in node.values():
            strict(value)
        if "properties" in node and node.get("type") == "object":
            node["additionalProperties"] = False
    elif isinstance(node, list):
        for value in node:
            strict(value)


def main():
    document, cases = (json.load(open(path)) for path in sys.argv[1:])
    strict(document["components"]["schemas"])
    failed = False
    for case in cases:
        path = case["path"].replace("~", "~0").replace("/", "~1")
        pointer = f"#/paths/{path}/{case['method']}/responses/200/content/application~1json/schema"
        validator = Draft202012Validator({"$ref": pointer, **document})
        errors = [error.message for error in validator.iter_errors(case["body"])]
        if bool(errors) != case.get("wrong", False):
            failed = True
            print(case["method"], case["path"], errors or "is accepted with a field too many")
    if failed:
        sys.exit(1)
    print(len(cases), "checked")


main()
