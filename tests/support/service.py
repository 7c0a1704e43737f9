"""Starts replicas with a service API on a redis-server."""

from tests.support.processes import WAITROOM, Process, free_port, wait_until
from tests.support.site import SECRET, Servers, SocketRedis, answers, make_folder

TOKEN = "test-service-token-0000"


class Service(Servers):
    """Replicas that share a Redis. Their service APIs listen at `urls`.

    Args:
        rules: Lines to append to the settings file, with leases and limits.
        store: URL of a running Redis. If it is empty, a redis-server is started.
    """

    def __init__(self, rules: str, *, replicas: int = 2, store: str = "") -> None:
        super().__init__()
        self._rules, self._count, self.store = rules, replicas, store
        self.replicas: list[Process] = []
        self.urls: list[str] = []

    def _start(self) -> None:
        self.folder = make_folder(self._stack)
        if not self.store:
            redis = SocketRedis(folder=self.folder)
            self.store = self._stack.enter_context(redis).url
        for number in range(self._count):
            edge, ops = free_port(), free_port()
            config = self.folder / f"replica-{number}.toml"
            config.write_text(
                f'store = "{self.store}"\nsecret_keys = ["{SECRET}"]\n'
                f'service_token = "{TOKEN}"\nstore_timeout = "10s"\n'
                f'edge_listen = "127.0.0.1:{edge}"\nops_listen = "127.0.0.1:{ops}"\n{self._rules}'
            )
            command = [WAITROOM, "serve", "--config", str(config)]
            self.replicas.append(self.run(f"replica-{number}", command))
            self.urls.append(f"http://127.0.0.1:{ops}")
        for url, replica in zip(self.urls, self.replicas, strict=True):
            wait_until(lambda url=url: answers(f"{url}/readyz"), "a replica", of=replica)
