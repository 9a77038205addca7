"""Evaluates parameter files with the offline checker's evaluator, and adds what that one leaves out: imports, checks of
parameters, fail(), and stand-ins for values that only Azure knows. See BICEPLINT in infra/README.md."""

import ipaddress
import json
import os
import sys
import uuid
import warnings

FOLDER = os.environ.get("BICEPLINT", "")
AVAILABLE = bool(FOLDER) and os.path.isfile(os.path.join(FOLDER, "snapshot.py"))
if AVAILABLE:
    sys.path.insert(0, FOLDER)
    # The checker leaves files to the garbage collector.
    warnings.filterwarnings("ignore", category=ResourceWarning)
    import check as checker
    import snapshot as base


class Refused(Exception):
    """A parameter or a check of the template refuses the values."""


# What a deployment would be given, and fixed, so that a snapshot is the same on every machine and day.
ENVIRONMENT = {
    "REPRIEVE_NAME": "demo",
    "AZURE_ENV_NAME": "demo",
    "AZURE_PRINCIPAL_ID": "00000000-0000-0000-0000-0000000000aa",
    "REPRIEVE_APPLICATION_VERSION": "1.4.0",
    "REPRIEVE_SSH_PUBLIC_KEY": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExample operator",
    "REPRIEVE_CONTACT_EMAILS": "ops@example.com",
    "REPRIEVE_ALLOWED_IPS": "203.0.113.7",
}


def stand_in(identifier, what):
    """A made-up GUID for a value that Azure makes up: the same for the same resource."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{identifier}#{what}"))


if AVAILABLE:

    class Eval(base.Eval):
        def __init__(self, path, params, out, scope=base.RGID, prefix=""):
            super().__init__(path, params, out, scope, prefix)
            self.imported = {}
            for statement in self.f.st:
                if statement.k == "import":
                    other = os.path.normpath(os.path.join(self.dir, statement.path.parts[0]))
                    source = Eval(other, {}, [])
                    for name, alias, _ in statement.items:
                        if name in source.sym or name in source.imported:
                            self.imported[alias] = (source, name)
            self.check_params()

        def check_params(self):
            declared = {s.name: s for s in self.f.st if s.k == "param"}
            for name in self.params:
                if name not in declared:
                    raise Refused(f"{name}: no such parameter")
            for name, s in declared.items():
                if name not in self.params and s.default is None:
                    raise Refused(f"{name}: no value")
                value = self.params.get(name)
                if value is None or isinstance(value, base.Unk):
                    continue
                for decorator in s.decorators:
                    kind, args = getattr(decorator, "name", ""), getattr(decorator, "args", [])
                    limit = self.ex(args[0]) if args and kind != "description" else None
                    size = len(value) if isinstance(value, (str, list)) else value
                    if kind == "allowed" and value not in limit:
                        raise Refused(f"{name}: {value!r} is not one of {limit}")
                    if kind in ("minValue", "minLength") and size < limit:
                        raise Refused(f"{name}: {size} is less than {limit}")
                    if kind in ("maxValue", "maxLength") and size > limit:
                        raise Refused(f"{name}: {size} is more than {limit}")

        def value(self, n):
            for scope in reversed(self.locals):
                if n in scope:
                    return scope[n]
            if n in self.imported:
                source, name = self.imported[n]
                return source.value(name)
            return super().value(n)

        def call(self, f, a):
            if f in self.imported:
                source, name = self.imported[f]
                return source.call(name, a)
            if f in self.sym and self.sym[f].k == "func":
                # A function sees its parameters, and not the loops that it is called from.
                s, kept = self.sym[f], self.locals
                self.locals = [{p: v for (p, _), v in zip(s.params, a, strict=True)}]
                try:
                    return self.ex(s.body)
                finally:
                    self.locals = kept
            if f == "fail":
                raise Refused(a[0])
            if f in MORE and not any(isinstance(x, base.Unk) for x in a):
                return MORE[f](*a)
            if f in ("map", "filter"):
                return self.with_index(f, *a)
            if f == "resourceGroup":
                # One name for a region, whoever writes it.
                return {"id": base.RGID, "name": base.RG, "location": "westeurope", "tags": {}}
            if f == "loadFileAsBase64":
                import base64

                with open(os.path.join(self.dir, a[0]), "rb") as file:
                    return base64.b64encode(file.read()).decode()
            if f == "uniqueString":
                return base.h13(*a)
            return super().call(f, a)

        def with_index(self, f, items, function):
            if f == "map":
                return [function(x, i) for i, x in enumerate(items)]
            return [x for i, x in enumerate(items) if function(x, i)]

        def ex(self, n):
            if n is None:
                return None
            if n.k == "lambda":
                scopes = list(self.locals)

                def function(*args):
                    kept, self.locals = self.locals, scopes + [dict(zip(n.params, args))]
                    try:
                        return self.ex(n.body)
                    finally:
                        self.locals = kept

                return function
            if n.k == "index" and getattr(n, "safe", False):
                o, i = self.ex(n.obj), self.ex(n.idx)
                return o.get(i) if isinstance(o, dict) else o[i] if i < len(o) else None
            if n.k == "nest":
                for name, s in self.sym.items():
                    if name == n.name and s.k == "resource":
                        return self.decl(name)
            # Operators that must not evaluate their other side.
            if n.k == "bin" and n.op in ("&&", "||"):
                a = self.ex(n.a)
                return a if bool(a) == (n.op == "||") else self.ex(n.b)
            return super().ex(n)

        def get(self, o, name):
            if isinstance(o, dict) and "__props" in o and name in ("clientId", "principalId", "customerId"):
                if not (name in o and o[name] is not None):
                    return stand_in(o["__props"].split("|")[0], name)
            if isinstance(o, dict) and "__props" in o and name == "primaryEndpoints":
                account = o["__props"].split("|")[0].rsplit("/", 1)[1]
                return {s: f"https://{account}.{s}.core.windows.net/" for s in ("blob", "queue")}
            if isinstance(o, dict) and "__id" in o and name == "identity" and o.get("identity"):
                return {**o["identity"], "principalId": stand_in(o["__id"], "principalId")}
            return super().get(o, name)

        def resource(self, s, b):
            before = len(self.out)
            made = super().resource(s, b)
            if len(self.out) > before:
                self.out[before]["id"] = made["__id"]
            return made

        def module(self, s, b):
            p = {k: v for k, v, _ in b.props}
            params = self.ex(p["params"]) if "params" in p else {}
            path = os.path.normpath(os.path.join(self.dir, s.ref.parts[0]))
            inner = Eval(path, params, self.out, self.scope)
            return {"__mod": True, "name": s.name, "outputs": inner.run()}


MORE = {
    "reduce": lambda items, start, f: __import__("functools").reduce(f, items, start),
    "json": lambda text: json.loads(text),
    "flatten": lambda lists: [x for one in lists for x in one],
    "cidrSubnet": lambda prefix, size, index: str(list(ipaddress.ip_network(prefix).subnets(new_prefix=size))[index]),
    "utcNow": lambda form="": "2026-11-01",
    "tenantResourceId": lambda kind, *names: (
        "/providers/" + kind.split("/")[0] + "".join(f"/{a}/{b}" for a, b in zip(kind.split("/")[1:], names))
    ),
    "base64": lambda text: __import__("base64").b64encode(text.encode()).decode(),
    "replace": lambda text, old, new: text.replace(old, new),
    "split": lambda text, by: text.split(by),
    "endsWith": lambda a, b: a.lower().endswith(b.lower()),
}


def evaluate(path, environment=None, overrides=None):
    """The resources and outputs of a parameter file. `overrides` replaces parameters, as KEY=VALUE of az does."""
    kept = dict(os.environ)
    os.environ.update({**ENVIRONMENT, **(environment or {})})
    try:
        file = checker.File.load(path)
        if file.err:
            raise file.err[0]
        reader = Eval.__new__(Eval)
        reader.f, reader.dir, reader.params = file, os.path.dirname(path), {}
        reader.cache, reader.sym, reader.locals, reader.imported = {}, {}, [], {}
        for s in file.st:
            if s.k == "var":
                reader.sym[s.name] = s
            if s.k == "using":
                template = os.path.normpath(os.path.join(reader.dir, s.path.parts[0]))
        params = {s.name: reader.ex(s.value) for s in file.st if s.k == "paramAssign"}
        params.update(overrides or {})
        out = []
        outputs = Eval(template, params, out).run()
        return base.clean(out), base.clean(outputs)
    finally:
        os.environ.clear()
        os.environ.update(kept)
