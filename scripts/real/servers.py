"""Starts real servers for experiments, each in its own directory on a free loopback port.

A server ends with its object. Debian's packages mariadb-server, postgresql, redis-server and
memcached provide the programs. None is started as a service, and data is deleted with the
temporary directory. ZooKeeper is of Debian's libzookeeper-java; Cassandra is in target/cassandra (`make
target/cassandra/ready`).
"""

import glob
import os
import pwd
import shutil
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CPU_V1 = "/sys/fs/cgroup/cpu"
CPU_V2 = "/sys/fs/cgroup"
# How long the scheduler counts before it gives a group its share again. Short, since a group that has used up its share stands still
# for the rest: with the usual 100 ms, that pause would be all that one sees. Longer where a share is small, as the kernel gives at least
# a millisecond.
PERIOD_US = 20_000
QUOTA_MIN_US = 1_000


def ports():
    """Ports that are free, each once, below those that the system gives to others between the choice and the start."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


PORTS = ports()


def program(name, *places):
    for place in [shutil.which(name), *(found for pattern in places for found in sorted(glob.glob(pattern), reverse=True))]:
        if place and os.access(place, os.X_OK):
            return place
    raise SystemExit(f"missing: {name}; install Debian's mariadb-server postgresql redis-server memcached openjdk-17-jre-headless")


class Server:
    """A process, the port it listens on and the processor share it may have."""

    # Databases refuse to run as root; this user, where there is one, runs them instead.
    user = None
    # Longest wait until it answers.
    start_s = 60

    def __init__(self, directory, name):
        self.name, self.port = name, next(PORTS)
        self.directory = os.path.join(directory, name)
        os.makedirs(self.directory)
        self.as_user = self.user if os.getuid() == 0 else None
        if self.as_user:
            shutil.chown(self.directory, self.as_user)
            os.chmod(directory, 0o755)
        self.process, self.group = None, None

    def run(self, *command, **options):
        done = subprocess.run(command, check=False, capture_output=True, user=self.as_user, group=self.group_of_user(),
                              cwd=self.directory, **options)
        if done.returncode:
            raise SystemExit(f"{self.name}: {command[0]} failed:\n{done.stderr.decode(errors='replace')}")

    def group_of_user(self):
        return pwd.getpwnam(self.as_user).pw_gid if self.as_user else None

    def start(self):
        self.launch()
        return self.wait()

    def launch(self):
        self.log = open(os.path.join(self.directory, "log"), "ab")
        self.process = subprocess.Popen(self.command(), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                        user=self.as_user, group=self.group_of_user(), cwd=self.directory)

    def wait(self):
        """Waits until a launched server answers."""
        end = time.monotonic() + self.start_s
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                with open(self.log.name, encoding="utf-8", errors="replace") as log:
                    raise SystemExit(f"{self.name} did not start:\n{log.read()}")
            time.sleep(0.05)
        return self

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.group:
            os.rmdir(self.group)
            self.group = None

    def limit_cpu(self, ratio):
        """Gives the process and its children this share of one core; None lifts the limit."""
        if not self.group:
            self.group = make_group(f"sherwood-{os.getpid()}-{self.name}")
            for pid in [self.process.pid, *children(self.process.pid)]:
                write(os.path.join(self.group, "cgroup.procs"), pid)
        period = PERIOD_US if ratio is None else max(PERIOD_US, int(QUOTA_MIN_US / ratio))
        quota = -1 if ratio is None else max(QUOTA_MIN_US, round(period * ratio))
        if os.path.exists(os.path.join(self.group, "cpu.cfs_quota_us")):
            write(os.path.join(self.group, "cpu.cfs_period_us"), period)
            write(os.path.join(self.group, "cpu.cfs_quota_us"), quota)
        else:
            write(os.path.join(self.group, "cpu.max"), f"{'max' if ratio is None else quota} {period}")


def make_group(name):
    group = os.path.join(root_of_groups(), name)
    try:
        os.mkdir(group)
    except OSError as error:
        raise SystemExit(f"making the control group {group}: {error}; a processor share needs root and cgroups") from None
    return group


def root_of_groups():
    """Version 1: the group of this process, so that what holds for it holds for the servers. Version 2 lets only the root have both
    processes and groups."""
    if not os.path.isdir(CPU_V1):
        return CPU_V2
    with open("/proc/self/cgroup", encoding="ascii") as file:
        lines = [line.strip().split(":", 2) for line in file]
    return CPU_V1 + next(path for _, controllers, path in lines if "cpu" in controllers.split(","))


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{value}\n")


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += [int(child), *children(int(child))]
    return found


class MariaDb(Server):
    user = "mysql"

    def __init__(self, directory, name="mariadb"):
        super().__init__(directory, name)
        self.data = os.path.join(self.directory, "data")
        self.socket = os.path.join(self.directory, "s")
        install = program("mariadb-install-db", "/usr/bin/mariadb-install-db")
        self.run(install, "--no-defaults", f"--datadir={self.data}", "--auth-root-authentication-method=normal", "--skip-test-db")

    def command(self):
        return [program("mariadbd", "/usr/sbin/mariadbd"), "--no-defaults", f"--datadir={self.data}", f"--socket={self.socket}",
                f"--port={self.port}", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M", "--skip-name-resolve",
                "--innodb-flush-log-at-trx-commit=2"]

    def sql(self, text):
        self.run(program("mariadb"), "--no-defaults", f"--socket={self.socket}", "--user=root", input=text.encode())


class Postgres(Server):
    user = "postgres"
    places = ("/usr/lib/postgresql/*/bin/",)

    def __init__(self, directory, name="postgres"):
        super().__init__(directory, name)
        self.data = os.path.join(self.directory, "data")
        self.run(self.program("initdb"), "-D", self.data, "-A", "trust", "-U", "postgres", "--no-sync")

    def program(self, name):
        return program(name, *(place + name for place in self.places))

    def command(self):
        return [self.program("postgres"), "-D", self.data, "-p", str(self.port), "-h", "127.0.0.1", "-k", self.directory,
                "-c", "shared_buffers=64MB", "-c", "fsync=off"]

    def answers(self):
        return super().answers() and subprocess.run(
            [self.program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False).returncode == 0

    def sql(self, text):
        self.run(self.program("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres",
                 input=text.encode())


class Redis(Server):
    def __init__(self, directory, name="redis", flags=()):
        super().__init__(directory, name)
        self.flags = list(flags)

    def command(self):
        return [program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                *self.flags]


class Memcached(Server):
    def __init__(self, directory, name="memcached", flags=()):
        super().__init__(directory, name)
        self.flags = list(flags)

    def command(self):
        user = ["-u", "nobody"] if os.getuid() == 0 else []
        return [program("memcached"), "-p", str(self.port), "-l", "127.0.0.1", "-U", "0", *user, *self.flags]


class Zookeeper(Server):
    """A server of its own; with further lines of configuration, one of an ensemble."""

    JARS = [f"/usr/share/java/{name}.jar" for name in ("zookeeper", "netty-codec", "netty-resolver")]

    def __init__(self, directory, name="zookeeper", lines=(), number=None):
        super().__init__(directory, name)
        data = os.path.join(self.directory, "data")
        os.makedirs(data)
        if number is not None:
            write(os.path.join(data, "myid"), number)
        self.file = os.path.join(self.directory, "zoo.cfg")
        own = [f"dataDir={data}", f"clientPort={self.port}", "admin.enableServer=false", "tickTime=500"]
        write(self.file, "\n".join([*own, *lines]))

    def command(self):
        if not os.path.exists(self.JARS[0]):
            raise SystemExit(f"missing: {self.JARS[0]}; install Debian's libzookeeper-java")
        java = [program("java"), "-Xmx128m", "-Dzookeeper.forceSync=no", "-XX:+UseSerialGC", "-cp", ":".join(self.JARS)]
        return [*java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.file]

    def answers(self):
        """True once it accepts sessions, as one of an ensemble does when there is a leader."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as stream:
                stream.sendall(b"srvr")
                return stream.recv(64).startswith(b"Zookeeper version")
        except OSError:
            return False


class Cassandra(Server):
    """A server of its own, in the set-up of the connector's tests."""

    start_s = 180
    JARS = os.path.abspath(os.path.join(HERE, "../../target/cassandra/jars"))
    SETUP = os.path.abspath(os.path.join(HERE, "../cassandra"))

    def __init__(self, directory, name="cassandra"):
        super().__init__(directory, name)
        self.file = os.path.join(self.directory, "cassandra.yaml")
        with open(os.path.join(self.SETUP, "cassandra.yaml"), encoding="utf-8") as file:
            text = file.read().replace("NATIVE_PORT", str(self.port)).replace("STORAGE_PORT", str(next(PORTS)))
        write(self.file, text)

    def command(self):
        if not os.path.isdir(self.JARS):
            raise SystemExit(f"missing: {self.JARS}; run `make target/cassandra/ready`")
        with open(os.path.join(self.SETUP, "java.options"), encoding="utf-8") as file:
            options = file.read().split()
        options += ["-Xmx512m", "-XX:MaxDirectMemorySize=128m", "-XX:+UseSerialGC"]
        options += [
            f"-Dlogback.configurationFile={self.SETUP}/logback.xml",
            f"-Dcassandra.config=file://{self.file}",
            f"-Dcassandra.storagedir={self.directory}/data",
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=0",
        ]
        return [program("java"), *options, "-cp", f"{self.JARS}/*", "org.apache.cassandra.service.CassandraDaemon"]

    def cql(self, *statements):
        """Executes statements, by version 4 of the native protocol."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as stream, stream.makefile("rb") as answers:
            startup = b"\0\1" + b"".join(len(word).to_bytes(2, "big") + word for word in (b"CQL_VERSION", b"3.0.0"))
            # QUERY: the text, the consistency ONE, no flags.
            queries = [len(text).to_bytes(4, "big") + text.encode() + b"\0\1\0" for text in statements]
            for operation, body in [(1, startup), *((7, query) for query in queries)]:
                stream.sendall(bytes([4, 0, 0, 0, operation]) + len(body).to_bytes(4, "big") + body)
                head = answers.read(9)
                answer = answers.read(int.from_bytes(head[5:], "big"))
                if head[4:5] in (b"", b"\0"):
                    raise SystemExit(f"{self.name}: a statement failed: {answer[6:].decode(errors='replace')}")
