"""From a profile and an engine environment to the exact command and variables that start the engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to start one engine; `env` is the whole environment of the child.

    Attributes:
        argv: program and arguments; no secret is ever in it.
        env: complete environment variables.
        host: address to bind, `port` its port.
        served_model_name: name that requests use.
        api_key: key that requests must carry, None if the server asks for none.
        profile_name: profile it came from; `environment_id` the environment it runs in.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    host: str
    port: int
    served_model_name: str
    profile_name: str
    environment_id: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Base address for clients on this machine, without a trailing slash."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "", "::"} else self.host  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
