"""The launch profile: what to run and how, as one frozen value that a TOML file and a form can hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.fields import FieldInfo

from backend.launch.profile_engine import Engine, Memory, Parallel, Scheduler, Server
from backend.launch.profile_model import Demo, Measured, Speculation, Target
from backend.launch.profile_types import Prose, Table, Text, argument, setting, variable_problem

SCHEMA = 1


class Profile(Table):
    """A launch profile. Its name is its file's name and stands in no file.

    None means "vLLM decides" everywhere; no field holds a secret or the path of an engine environment.
    """

    name: Text = Field(exclude=True, title="Name", description="Name of the profile: its file's name.")
    schema_version: int = Field(
        SCHEMA, alias="schema", ge=SCHEMA, le=SCHEMA, title="Schema", description="Version of this file's layout."
    )
    title: Prose = setting("Title", "The name that lists show.", default="")
    description: Prose = setting("Description", "What the profile is good for, in plain words.", default="")
    hardware: Prose = setting("Hardware", "What machine it needs, in plain words.", default="")
    target: Target
    speculation: Speculation = Speculation()
    parallel: Parallel = Parallel()
    memory: Memory = Memory()
    scheduler: Scheduler = Scheduler()
    server: Server = Server()
    engine: Engine = Engine()
    env: dict[str, Prose] = Field(
        default_factory=dict, title="Extra variables", description="Environment variables for the engine. No secrets."
    )
    extra_args: tuple[Annotated[str, AfterValidator(argument)], ...] = setting(
        "Extra arguments", "Options of vllm serve that have no field here, one list item a word.", default=(),
        strict=False,
    )  # fmt: skip
    measured: Measured | None = None
    demo: Demo | None = None

    @model_validator(mode="after")
    def _variables(self) -> Self:
        for name in self.env:
            if problem := variable_problem(name):
                raise ValueError(f"env.{name} {problem}")
        return self

    @property
    def shown_title(self) -> str:
        """Title, or the name where there is none."""
        return self.title or self.name


@dataclass(frozen=True, slots=True)
class ProfileField:
    """One field of a profile as forms and the command line see it.

    Attributes:
        path: where it stands, for example "memory.kv_cache_bytes".
        group: label of its table.
        title: its label; `description` a sentence; `unit` of the value or "".
        flag: option of `vllm serve` that carries it as it is, "" if it takes another way.
        gpu_only: True when a CPU engine does not use it.
    """

    path: str
    group: str
    title: str
    description: str
    unit: str
    flag: str
    gpu_only: bool

    def value(self, profile: Profile) -> Any:
        """Return what `profile` says here, None when its table is missing or it says nothing."""
        value: Any = profile
        for part in self.path.split("."):
            value = getattr(value, part, None)
        return value


def _describe(path: str, group: str, info: FieldInfo) -> ProfileField:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    return ProfileField(
        path=path,
        group=group,
        title=info.title or path,
        description=info.description or "",
        unit=str(extra.get("unit", "")),
        flag=str(extra.get("flag", "")),
        gpu_only=bool(extra.get("gpu_only", False)),
    )


def _walk() -> Iterator[ProfileField]:
    tables: dict[str, type[Table]] = {"measured": Measured, "demo": Demo}
    for name, info in Profile.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Table):
            tables[name] = info.annotation
        elif name not in tables and name not in {"name", "schema_version"}:
            yield _describe(name, "Profile", info)
    for name, table in tables.items():
        group = (table.__doc__ or name).split(":")[0]
        for field, info in table.model_fields.items():
            yield _describe(f"{name}.{field}", group, info)


FIELDS: tuple[ProfileField, ...] = tuple(_walk())
"""Every field of a profile, top level first, then table by table."""
