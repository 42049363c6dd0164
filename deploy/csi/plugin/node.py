"""The work of a node on volumes: a `millrace mount` for each on its staging folder, and bind mounts of that for pods. This file has no gRPC.

The present state is read from the kernel's table of mounts. So every call can be repeated, also by another process after this one was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

FILE_SYSTEM = "fuse.millrace"
READY_SECONDS = 90.0
ANSWER_SECONDS = 10.0  # for a mount to say that it lives, which it does without its store
COMMAND_SECONDS = 60.0
MNT_DETACH = 2  # umount(2)
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
NEEDED_KEYS = KEYS[:2]
# Other ways to credentials, which a volume with keys of its own must not fall back to.
OTHER_WAYS = (
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)
# Settings of the plugin that may contradict the endpoint of a volume, or win over it.
OTHER_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT")
ATTRIBUTES = {"uri", "region", "endpoint"}
# Options of `millrace mount` that the author of a volume may give; others name folders and files of the node.
OPTIONS = {"uid", "gid", "umask", "metadata-ttl", "timeout", "memory", "staging-size", "publish-on-fsync"}
# Options that need a volume which is written.
WRITING = {"no-links", "no-overwrite", "no-staging", "staging-size", "publish-on-fsync"}
FLAGS = {"links", "no-links", "no-overwrite", "no-staging"}


class Refused(Exception):
    """A call that cannot be done; `code` is the name of a status of gRPC."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Settings:
    """The settings for all volumes of the node."""

    millrace: str = "millrace"
    cache: str = ""  # a folder that they share; "": none
    cache_size: str = ""
    memory: str = ""  # of each mount, unless its volume gives another
    folders: bool = False  # True: a volume may be a folder of the node
    staging: str = ""  # a folder for files that are being written; "": that of the cache
    max_memory: str = ""  # the limit for the memory that a volume may give; "": any
    max_staging: str = ""  # the limit for the staging-size that a volume may give, and its default


@dataclass(frozen=True)
class Volume:
    """The wanted properties of a volume."""

    id: str
    uri: str
    writable: bool
    options: tuple[str, ...] = ()  # of `millrace mount -o`
    region: str = ""
    endpoint: str = ""

    @property
    def source(self) -> str:
        """The source as the table of mounts shows it."""
        return self.uri.replace(",", "_")


def bytes_of(size: str) -> float:
    """Returns the bytes of a size as `millrace` reads it: 64MiB, 1.5GB, 100. Raises ValueError for other texts."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:([KMGT])(i?)B|B?)", size)
    if found is None:
        raise ValueError(f"'{size}' is no size, such as 512MiB")
    number, unit, binary = found.groups()
    return float(number) * (1024 if binary else 1000) ** (" KMGT".index(unit) if unit else 0)


def check_limits(volume: Volume, settings: Settings) -> None:
    """Refuses a volume, as INVALID_ARGUMENT, that would take more of the node than its operator allows."""
    for name, limit in (("memory", settings.max_memory), ("staging-size", settings.max_staging)):
        for option in volume.options:
            if not limit or option.partition("=")[0] != name:
                continue
            try:
                allowed = bytes_of(option.partition("=")[2]) <= bytes_of(limit)
            except ValueError as error:
                raise Refused("INVALID_ARGUMENT", f"volume {volume.id}: {name}: {error}") from error
            if not allowed:
                raise Refused(
                    "INVALID_ARGUMENT",
                    f"volume {volume.id}: {option} is more than the plugin allows, {limit}; ask for less, "
                    f"or start the plugin with a larger --max-{name}",
                )


def check_uri(volume_id: str, uri: str, folders: bool) -> None:
    """Refuses a path of the node, as INVALID_ARGUMENT, unless folders are allowed: the plugin is root, and sees the secrets of all pods."""
    if uri.startswith("s3://") or (folders and uri.startswith(("/", "file:///"))):
        return
    remedy = "it must be s3://BUCKET/PREFIX, or the absolute path of a folder"
    if not folders:
        remedy = "it must be s3://BUCKET/PREFIX; a folder of the node needs --allow-folders of the plugin"
    raise Refused("INVALID_ARGUMENT", f"volume {volume_id}: uri is '{uri}' in volumeAttributes; {remedy}")


def check_secrets(volume: Volume, secrets: Mapping[str, str]) -> None:
    """Refuses, as INVALID_ARGUMENT, keys that are unknown or incomplete, and an endpoint that would get the plugin's own keys."""
    for name in secrets:
        if name not in KEYS:
            raise Refused(
                "INVALID_ARGUMENT", f"volume {volume.id}: its secret has '{name}'; known are {', '.join(KEYS)}"
            )
    missing = [name for name in NEEDED_KEYS if not secrets.get(name)]
    if secrets and missing:
        raise Refused("INVALID_ARGUMENT", f"volume {volume.id}: its secret lacks {' and '.join(missing)}")
    if volume.endpoint and missing:
        raise Refused(
            "INVALID_ARGUMENT",
            f"volume {volume.id}: the plugin does not send its own keys to the endpoint of a volume; "
            f"give the volume a secret with {' and '.join(missing)} (nodeStageSecretRef)",
        )


def volume_of(
    volume_id: str, attributes: Mapping[str, str], flags: list[str], writable: bool, folders: bool = False
) -> Volume:
    """Returns a volume. Unknown attributes and mount options are INVALID_ARGUMENT. `folders` is that of Settings."""
    given = {
        name: value
        for name, value in attributes.items()
        if not re.match(r"(csi\.storage\.k8s\.io|storage\.kubernetes\.io)/", name)
    }
    for name in given:
        if name not in ATTRIBUTES:
            raise Refused(
                "INVALID_ARGUMENT",
                f"volume {volume_id}: there is no attribute '{name}'; known are {', '.join(sorted(ATTRIBUTES))}",
            )
    uri = given.get("uri", "")
    check_uri(volume_id, uri, folders)
    options = []
    for flag in flags:
        name, equals, value = flag.partition("=")
        if name in ("ro", "rw"):
            writable = writable and name == "rw"
        elif (name in OPTIONS and equals and value and "," not in value) or flag in FLAGS:
            options.append(flag)
        else:
            known = ", ".join([*(f"{option}=VALUE" for option in sorted(OPTIONS)), *sorted(FLAGS), "ro"])
            raise Refused(
                "INVALID_ARGUMENT", f"volume {volume_id}: there is no mount option '{flag}'; known are {known}"
            )
    for option in options:
        if not writable and option.partition("=")[0] in WRITING:
            raise Refused("INVALID_ARGUMENT", f"volume {volume_id}: {option} needs an access mode that writes")
    return Volume(volume_id, uri, writable, tuple(options), given.get("region", ""), given.get("endpoint", ""))


@dataclass(frozen=True)
class Mounted:
    """An entry of the table of mounts."""

    device: str
    type: str
    source: str
    writable: bool


def mounted_on(folder: str) -> Mounted | None:
    """Returns the topmost mount on a folder. It does not ask the file system itself, which may be dead."""
    found = None
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            before, _, after = line.rstrip("\n").partition(" - ")
            fields, kind = before.split(" "), after.split(" ")
            if _plain(fields[4]) == folder:
                writable = "ro" not in fields[5].split(",") and "ro" not in kind[2].split(",")
                found = Mounted(fields[2], kind[0], _plain(kind[1]), writable)
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)


def is_alive(folder: str) -> bool:
    """Says if the process of the file system on a folder lives. If it does not answer, that is DEADLINE_EXCEEDED."""
    # This does not use stat, which the kernel may answer from its cache. It uses another process, which can be killed while it waits.
    status, said = output_of(ANSWER_SECONDS, "stat", "--file-system", "--", folder)
    if status == 0:
        return True
    if os.strerror(errno.ENOTCONN) in said or os.strerror(errno.ECONNABORTED) in said:
        return False
    raise Refused("INTERNAL", f"{folder}: {said}")


def real(path: str) -> str:
    """Returns the path as the table of mounts has it. Its last part may be a dead file system."""
    head, tail = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(head), tail)


def output_of(seconds: float, *command: str) -> tuple[int, str]:
    """Returns the exit status and the text on stderr. If the program does not end in time, it is killed without a wait: DEADLINE_EXCEEDED."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=os.environ | {"LC_ALL": "C"},
    )
    try:
        said = process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired as late:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        raise Refused("DEADLINE_EXCEEDED", f"{' '.join(command)}: did not end within {seconds:.0f} s") from late
    return process.returncode, said.strip()


def run(*command: str) -> None:
    status, said = output_of(COMMAND_SECONDS, *command)
    if status != 0:
        raise Refused("INTERNAL", f"{' '.join(command)}: {said}")


def answers(folder: str) -> bool:
    """Returns False if its process has stopped, or has not ended since it was killed. A dead file system answers with an error."""
    try:
        is_alive(folder)
    except Refused as refused:
        return refused.code != "DEADLINE_EXCEEDED"
    return True


def end_connection(there: Mounted) -> None:
    """Ends the connection of a file system. All calls that wait for it fail, and its process sees the end of the mount."""
    with tempfile.TemporaryDirectory(prefix="fusectl-") as control:
        run("mount", "-t", "fusectl", "fusectl", control)  # in few containers it is mounted
        try:
            with open(f"{control}/{there.device.partition(':')[2]}/abort", "w", encoding="ascii") as file:
                file.write("1")
        finally:
            run("umount", control)


def detach(folder: str) -> None:
    """Detaches a file system, so that the folder shows its own contents. The file system ends with its last open file.

    Unlike umount(8), this does not ask the file system.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(folder), MNT_DETACH) != 0:
        raise Refused("INTERNAL", f"{folder}: cannot be unmounted: {os.strerror(ctypes.get_errno())}")


def unmount(folder: str, force: bool = False) -> None:
    """Unmounts a folder. With `force`, calls that wait for a file system without answer fail."""
    there = mounted_on(folder)
    if answers(folder):
        with contextlib.suppress(Refused):  # somebody has a file open
            return run("umount", "-i", "-c", folder)
    elif force and there is not None:
        end_connection(there)
    detach(folder)


def unmount_dead(folder: str) -> Mounted | None:
    """Returns the mount that lives there, after a dead one was removed. If it does not answer, that is DEADLINE_EXCEEDED."""
    while (there := mounted_on(folder)) is not None and there.type == FILE_SYSTEM and not is_alive(folder):
        unmount(folder)
    return there


class Node:
    """Stages and publishes volumes. Thread-safe: a call for a volume that another call is busy with is ABORTED."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._staged: dict[str, tuple[Volume, dict[str, str]]] = {}  # by folder, for one whose process has died

    def stage(self, volume: Volume, staging: str, secrets: Mapping[str, str]) -> None:
        check_secrets(volume, secrets)
        check_limits(volume, self._settings)
        folder = real(staging)
        with self._alone(volume.id):
            there = unmount_dead(folder)
            if there is None:
                os.makedirs(folder, exist_ok=True)
                self._mount(volume, folder, secrets)
            elif (there.type, there.source, there.writable) != (FILE_SYSTEM, volume.source, volume.writable):
                raise Refused(
                    "ALREADY_EXISTS", f"volume {volume.id}: {staging} has {there.source} mounted, in another way"
                )
            self._staged[folder] = (volume, dict(secrets))

    def unstage(self, volume_id: str, staging: str) -> None:
        folder = real(staging)
        with self._alone(volume_id):
            self._staged.pop(folder, None)
            self._unmount_all(volume_id, folder, force=True)

    def publish(self, volume: Volume, staging: str, target: str, readonly: bool) -> None:
        folder, place = real(staging), real(target)
        with self._alone(volume.id):
            staged = unmount_dead(folder)
            if staged is None and folder in self._staged:
                self._mount(*self._with_folder(folder))
                staged = mounted_on(folder)
            if staged is None or staged.type != FILE_SYSTEM:
                raise Refused(
                    "FAILED_PRECONDITION",
                    f"volume {volume.id}: {staging} is not staged, or its process has died; end the pods that use it",
                )
            writable = staged.writable and volume.writable and not readonly
            there = unmount_dead(place)
            if there is not None:
                if (there.device, there.writable) == (staged.device, writable):
                    return
                raise Refused(
                    "ALREADY_EXISTS", f"volume {volume.id}: {target} has {there.source} mounted, in another way"
                )
            os.makedirs(place, exist_ok=True)
            run("mount", "--bind", folder, place)
            if not writable and staged.writable:
                try:
                    run("mount", "-o", "remount,bind,ro", place)
                except Refused:
                    unmount(place)
                    raise

    def unpublish(self, volume_id: str, target: str) -> None:
        place = real(target)
        with self._alone(volume_id):
            self._unmount_all(volume_id, place)
            with contextlib.suppress(FileNotFoundError):
                try:
                    os.rmdir(place)
                except OSError as error:
                    if error.errno == errno.ENOENT:
                        raise
                    raise Refused(
                        "INTERNAL", f"volume {volume_id}: {target} cannot be removed: {error.strerror}"
                    ) from error

    @contextlib.contextmanager
    def _alone(self, volume_id: str) -> Iterator[None]:
        with self._lock:
            if volume_id in self._busy:
                raise Refused("ABORTED", f"volume {volume_id}: another call is busy with it")
            self._busy.add(volume_id)
        try:
            yield
        except OSError as error:
            raise Refused("INTERNAL", f"volume {volume_id}: {error}") from error
        finally:
            with self._lock:
                self._busy.discard(volume_id)

    def _with_folder(self, folder: str) -> tuple[Volume, str, dict[str, str]]:
        volume, secrets = self._staged[folder]
        return volume, folder, secrets

    def _unmount_all(self, volume_id: str, folder: str, force: bool = False) -> None:
        while (there := mounted_on(folder)) is not None:
            if there.type != FILE_SYSTEM:
                raise Refused(
                    "INTERNAL",
                    f"volume {volume_id}: {folder} has {there.source} mounted, which is no file system of Millrace",
                )
            unmount(folder, force)

    def _command(self, volume: Volume, folder: str) -> list[str]:
        settings = self._settings
        command = [
            settings.millrace,
            "mount",
            volume.uri,
            folder,
            "--foreground",
            "-o",
            ",".join(["allow_other", *volume.options]),
        ]
        if volume.writable:
            command.append("--writable")
        if settings.memory:
            command += ["--memory", settings.memory]
        if settings.cache:
            command += ["--cache", settings.cache]
        if volume.writable and "no-staging" not in volume.options:
            if settings.staging:
                command += ["--staging", settings.staging]
            if settings.max_staging and not any(option.startswith("staging-size=") for option in volume.options):
                command += ["--staging-size", settings.max_staging]
        if settings.cache and settings.cache_size:
            command += ["--cache-size", settings.cache_size]
        return command

    def _mount(self, volume: Volume, folder: str, secrets: Mapping[str, str]) -> None:
        environment = dict(os.environ)
        if secrets:
            for name in (*KEYS, *OTHER_WAYS):
                environment.pop(name, None)
            environment |= secrets
        if volume.region:
            environment["AWS_REGION"] = volume.region
        if volume.endpoint:
            for name in OTHER_ENDPOINTS:
                environment.pop(name, None)
            environment["AWS_ENDPOINT_URL_S3"] = volume.endpoint
        process = subprocess.Popen(
            self._command(volume, folder),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        said: deque[str] = deque(maxlen=5)
        relay = threading.Thread(target=_relay, args=(process, volume.id, said), daemon=True)
        relay.start()
        deadline = time.monotonic() + READY_SECONDS
        while mounted_on(folder) is None:
            if process.poll() is not None:
                relay.join()
                code = "INVALID_ARGUMENT" if process.returncode == 2 else "INTERNAL"
                raise Refused(code, f"volume {volume.id}: {volume.uri} cannot be mounted: {' '.join(said)}")
            if time.monotonic() > deadline:
                process.kill()
                relay.join()
                raise Refused(
                    "DEADLINE_EXCEEDED",
                    f"volume {volume.id}: {volume.uri} was not mounted within {READY_SECONDS:.0f} s",
                )
            time.sleep(0.02)


def _relay(process: subprocess.Popen[str], volume_id: str, said: deque[str]) -> None:
    """Copies the output of the mount to the log of the plugin, until it ends."""
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            said.append(line.strip())
            print(f"{volume_id}: {line.strip()}", file=sys.stderr, flush=True)
    process.wait()
