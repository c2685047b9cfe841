"""`/openapi.json`: the request models that routes read from the raw body, and the errors that any of them answers."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_ERRORS = {
    "Error": _object(error=_object(message=_TEXT, type=_TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)),
    "MessagesError": _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT)),
}


def install(app: FastAPI, bodies: Mapping[str, type[BaseModel]], served: Callable[[], str | None]) -> None:
    """`bodies` maps a path to what its POST takes, `served` names the model once there is one."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app, bodies)
        if (name := served()) is not None:
            for schema in app.openapi_schema["components"]["schemas"].values():
                if "model" in schema["properties"]:
                    schema["properties"]["model"] = {"type": "string", "enum": [name]}
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _described(app: FastAPI, bodies: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
    models = list(bodies.values())
    references, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(definitions.get("$defs", {}), **_ERRORS)
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which nothing here answers
        schemas.pop(name, None)
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            _describe_answers(operation, "MessagesError" if path.startswith("/v1/messages") else "Error")
            if method == "post" and path in bodies:
                body = references[bodies[path], "validation"]
                operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
                operation["responses"]["200"]["content"].setdefault("text/event-stream", {"schema": _TEXT})
    return schema


def _describe_answers(operation: dict[str, Any], error: str) -> None:
    answers = operation["responses"]
    answers.pop("422", None)
    content = {"application/json": {"schema": {"$ref": _REF.format(model=error)}}}
    answers["4XX"] = {"description": "The request cannot be served as it is.", "content": content}
    answers["5XX"] = {"description": "The server cannot serve it now.", "content": content}
