"""Turns a Parquet file into MDS shards, by Apache Arrow: python3 - FILE FOLDER NAME KEY

Writes FOLDER/NAME.00000.mds and so on, each whole or not at all. When all are durable, it writes FOLDER/.NAME.done.
That file says how many rows and shards there are, with the sizes and the names of classes: {"rows": 3, "shards":
[1234], "classes": {"label": ["cat", "dog"]}}. Nobody else may write there. A row is a sample with the key KEY/00000000,
or its column __key__. Exits 3 with one line on stderr for what is wrong with the file, 4 for what is wrong with this
Python, 5 before the disk is full. `millrace pack` runs this; docs/formats/shards.md says what becomes of each type.
"""

import base64
import json
import math
import mmap
import os
import re
import struct
import sys

SHARD_BYTES = 64 << 20
BATCH_BYTES = 16 << 20  # of rows that are decoded at a time, about
FIRST_ROWS, MOST_ROWS = 16, 4096  # of a batch
# One value of a dictionary may stand in millions of rows. As for compressed shards (unpack.cc): those of real data do not grow so much.
MOST_GROWTH, ANY_GROWTH = 1000, 64 << 20
FREE_SHARE = 20  # one twentieth of the file system stays free
PARENT = os.getppid()


def refuse(why, status=3):
    print(why, file=sys.stderr)
    sys.exit(status)


try:
    import numpy
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError:
    refuse("its Python has no pyarrow: pip install pyarrow, or name another Python by MILLRACE_PYTHON", 4)


class Column:
    """Says how the values of a column become bytes: `encoding` is MDS's name of it, `size` that of each value, or 0."""

    def __init__(self, name, encoding, size, convert):
        self.name, self.encoding, self.size, self.convert = name, encoding, size, convert


def each(function, empty=None):
    """Converts a column with nulls: `empty` stands for them."""

    def convert(name, values, first_row):
        try:
            values, result = values.to_pylist(), []
        except (ValueError, pa.ArrowException) as error:
            refuse(f"column '{name}', between row {first_row} and {first_row + len(values) - 1}: {error}")
        for row, value in enumerate(values):
            if value is None and empty is None:
                refuse(f"row {first_row + row}: column '{name}' is null here, and not in the rows that told its type")
            try:
                result.append(empty if value is None else function(value))
            except ValueError as error:
                refuse(f"row {first_row + row}: column '{name}': {error}")
        return result

    return convert


def as_json(name, values, first_row):
    try:
        found = json_values(values)
    except (ValueError, pa.ArrowException) as error:
        refuse(f"column '{name}', between row {first_row} and {first_row + len(values) - 1}: {error}")
    return [
        json.dumps(value, default=str, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        for value in found
    ]


def json_values(values):
    """Returns what JSON can hold of an array of any type, and text for the rest. This is done here and not by
    to_pylist(). For times, to_pylist() gives what depends on whether pandas is installed, and it fails if Python's
    types have no place for nanoseconds.
    """
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return json_values(values.dictionary_decode())
    if types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            raise ValueError("two fields of a struct have one name")
        fields = [json_values(pc.struct_field(values, [i])) for i in range(len(names))]
        valid = values.is_valid().to_pylist()
        return [
            {n: field[row] for n, field in zip(names, fields)} if valid[row] else None for row in range(len(values))
        ]
    if types.is_map(kind):
        ends = values.offsets.to_pylist()
        begin = ends[0] if ends else 0
        pairs = [values.keys.slice(begin, ends[-1] - begin), values.items.slice(begin, ends[-1] - begin)]
        entries = [list(pair) for pair in zip(*map(json_values, pairs))]
        valid = values.is_valid().to_pylist()
        return [
            entries[ends[row] - begin : ends[row + 1] - begin] if valid[row] else None for row in range(len(values))
        ]
    if is_list(kind):
        inner, result, at = json_values(values.flatten()), [], 0
        for length in pc.list_value_length(values).to_pylist():
            result.append(None if length is None else inner[at : at + length])
            at += length or 0
        assert at == len(inner)
        return result
    if types.is_temporal(kind) and not types.is_interval(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        return [None if count is None else time_text(count, kind) for count in values.cast(whole).to_pylist()]
    return [plain(value) for value in values.to_pylist()]


def plain(value):
    if isinstance(value, (bytes, bytearray)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


UNITS = {"s": (1, 0), "ms": (10**3, 3), "us": (10**6, 6), "ns": (10**9, 9)}  # in a second; digits behind the point


def time_text(count, kind):
    """Writes RFC 3339's text, with as many digits as the type has; 'Z' for moments, which are those with a time zone; a
    duration is `1.500s`."""
    if pa.types.is_date32(kind):
        return str(numpy.datetime64(count, "D"))
    if pa.types.is_date64(kind):
        return str(numpy.datetime64(count // 86_400_000, "D"))
    in_second, digits = UNITS[kind.unit]
    seconds, rest = divmod(abs(count) if pa.types.is_duration(kind) else count, in_second)
    fraction = f".{rest:0{digits}d}" if digits else ""
    if pa.types.is_duration(kind):
        return f"{'-' if count < 0 else ''}{seconds}{fraction}s"
    if pa.types.is_time(kind):
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
    return f"{numpy.datetime64(seconds, 's')}{fraction}{'Z' if kind.tz else ''}"


ARRAY_CODES = {
    pa.uint8(): 8, pa.int8(): 9, pa.uint16(): 16, pa.int16(): 17, pa.float16(): 18, pa.uint32(): 32, pa.int32(): 33,
    pa.float32(): 34, pa.uint64(): 64, pa.int64(): 65, pa.float64(): 66,
}  # fmt: skip


def is_list(kind):
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def array_shape(kind):
    """Returns the type of the numbers in lists, and the sizes of all axes but the first; None for other columns."""
    sizes = []
    inner = kind.value_type
    while pa.types.is_fixed_size_list(inner):
        sizes.append(inner.list_size)
        inner = inner.value_type
    return (inner, sizes) if inner in ARRAY_CODES else None


def has_nulls(values):
    """Returns whether there are nulls at any depth."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.null_count > 0 or (is_list(values.type) and has_nulls(values.flatten()))


def arrays(kind):
    """Writes MDS's form: type and axes, then the values."""
    number, sizes = array_shape(kind)

    def convert(name, values, first_row):
        if has_nulls(values):  # flattening drops them, and what follows would move up
            refuse(f"column '{name}' has nulls within its arrays from row {first_row} on; fill them first")
        result = []
        per_entry = math.prod(sizes)
        flat = values.flatten()
        for _ in sizes:
            flat = flat.flatten()
        data = flat.to_numpy(zero_copy_only=False)
        at = 0
        for length in pc.list_value_length(values).to_pylist():
            axes = [length, *sizes]
            log = 0 if max(axes) < 1 << 8 else 1 if max(axes) < 1 << 16 else 2 if max(axes) < 1 << 32 else 3
            head = bytes([ARRAY_CODES[number], len(axes) << 2 | log])
            head += b"".join(axis.to_bytes(1 << log, "little") for axis in axes)
            end = at + length * per_entry
            result.append(head + data[at:end].tobytes())
            at = end
        assert at == len(data)
        return result

    return convert


def is_file_struct(kind):
    """Recognizes how Hugging Face's datasets keep images and audio."""
    return pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}


def file_bytes(name, values, first_row):
    result = []
    for row, value in enumerate(values.to_pylist()):
        if value is None:  # as of other bytes
            result.append(b"")
            continue
        if value["bytes"] is None:
            refuse(
                f"row {first_row + row}: column '{name}' has only the path of a file, not its bytes; embed the files"
            )
        result.append(value["bytes"])
    return result


def image_encoding(first):
    if first[:3] == b"\xff\xd8\xff":
        return "jpeg"
    return "png" if first[:8] == b"\x89PNG\r\n\x1a\n" else "bytes"


def whole(value):
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"the number {value} does not fit into 64 bits with a sign")
    return struct.pack("<q", value)


def class_labels(file):
    """Returns the names of the classes, by the columns that Hugging Face's datasets call classes. In these a null is
    -1, which is no class."""
    try:
        features = json.loads((file.schema_arrow.metadata or {})[b"huggingface"])["info"]["features"]
        told = [(name, feature) for name, feature in features.items() if isinstance(feature, dict)]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return {}
    return {name: names_of(feature.get("names")) for name, feature in told if feature.get("_type") == "ClassLabel"}


def names_of(names):
    """Returns the names that can be numbered, as the datasets do it; else no names."""
    told = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    return names if told and len(set(names)) == len(names) else []


def column_for(name, kind, nullable, first, is_class=False):
    """`nullable` means that there are nulls. `first` has the bytes of the first value, if it is a file."""
    types = pa.types
    if is_class and types.is_integer(kind):
        return Column(name, "int", 8, each(lambda value: whole(int(value)), whole(-1)))
    if is_file_struct(kind):
        return Column(name, image_encoding(first), 0, file_bytes)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return Column(name, image_encoding(first), 0, each(bytes, b""))
    if types.is_string(kind) or types.is_large_string(kind):
        return Column(name, "str", 0, each(str.encode, b""))
    if types.is_floating(kind):
        return Column(name, "float64", 8, each(lambda value: struct.pack("<d", value), struct.pack("<d", math.nan)))
    if not nullable and (types.is_integer(kind) or types.is_boolean(kind)):
        return Column(name, "int", 8, each(lambda value: whole(int(value))))
    if not nullable and is_list(kind) and array_shape(kind):
        return Column(name, "ndarray", 0, arrays(kind))
    return Column(name, "json", 0, as_json)


def find_columns(file, classes):
    """Types depend on whether there are nulls, so that is looked up first, column by column where Parquet does not tell it."""
    columns = []
    for field in file.schema_arrow:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        nullable, first = False, b""
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or is_file_struct(kind):
            first = first_file(file, field.name)
        elif is_list(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            # That lists cannot be null says nothing of what is in them.
            nullable = (field.nullable or is_list(kind)) and any(
                has_nulls(batch.column(0)) for batch in batches(file, [field.name])
            )
        columns.append(column_for(field.name, kind, nullable, first, field.name in classes))
    return columns


def batches(file, names=None):
    """Yields batches of about BATCH_BYTES. The size of each follows from that of the last, since the file may claim any
    sizes."""
    rows = FIRST_ROWS
    for batch in file.iter_batches(batch_size=rows, columns=names):
        size = max(1, sum(map(decoded_bytes, batch.columns)))
        fitting = max(1, BATCH_BYTES * batch.num_rows // size)
        for begin in range(0, batch.num_rows, fitting):
            yield batch.slice(begin, fitting)
        rows = min(MOST_ROWS, 4 * rows, fitting)
        file.reader.set_batch_size(rows)


def decoded_bytes(values):
    """Returns how many bytes there are when a dictionary's words stand in their rows."""
    if not pa.types.is_dictionary(values.type):
        return values.nbytes
    words, kind, types = values.dictionary, values.type.value_type, pa.types
    if not (
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    ):
        return len(values) * (words.nbytes // max(1, len(words)))
    return pc.sum(pc.binary_length(words).cast(pa.int64()).take(values.indices)).as_py() or 0


def first_file(file, name):
    """Returns the first bytes in a column that are not null or empty."""
    for batch in file.iter_batches(batch_size=1, columns=[name]):
        for value in batch.column(0).to_pylist():
            value = value["bytes"] if isinstance(value, dict) else value
            if value:
                return value
    return b""


def put(folder, name, pieces):
    """Writes a durable file, as a whole; returns its size."""
    making = os.path.join(folder, f".{os.getpid()}.making")
    with open(making, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    if os.getppid() != PARENT:
        sys.exit(f"the process that waited for {name} is gone")  # and another one may be making it
    os.replace(making, os.path.join(folder, name))
    return size


class Writer:
    """Writes `most` bytes of samples, and refuses more."""

    def __init__(self, folder, name, columns, most):
        self.folder, self.name, self.columns = folder, name, sorted(columns, key=lambda column: column.name)
        self.samples, self.bytes, self.rows, self.sizes = [], 0, 0, []
        self.left = most
        self.remove_shards()  # what an earlier Python has left may be other shards

    def remove_shards(self):
        for found in os.listdir(self.folder):
            if found.startswith(self.name) and re.fullmatch(r"\.[0-9]{5,}\.mds", found[len(self.name) :]):
                os.remove(os.path.join(self.folder, found))

    def check_room(self):
        """Checks the room before samples are written."""
        self.left -= self.bytes
        if self.left < 0:
            self.remove_shards()
            refuse(
                f"its rows take more than {MOST_GROWTH} times its size, as those of a file made to fill the disk would; write it "
                "again without compression and dictionaries if they are meant to"
            )
        disk = os.statvfs(self.folder)
        if disk.f_bavail < disk.f_blocks // FREE_SHARE:
            self.remove_shards()
            refuse(
                f"{self.folder}: less than {100 // FREE_SHARE} % of the disk would be free; name a folder with more room by --scratch",
                5,
            )

    def add(self, values):
        """Adds a sample, whose values are given by the names of the columns."""
        ordered = [values[column.name] for column in self.columns]
        sizes = [len(value) for column, value in zip(self.columns, ordered) if not column.size]
        sample = struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(ordered)
        if self.samples and self.bytes + len(sample) > SHARD_BYTES:
            self.flush()
        self.samples.append(sample)
        self.bytes += len(sample)

    def flush(self):
        if not self.samples:
            return
        self.check_room()
        description = json.dumps(
            {
                "column_encodings": [column.encoding for column in self.columns],
                "column_names": [column.name for column in self.columns],
                "column_sizes": [column.size or None for column in self.columns],
                "compression": None,
                "format": "mds",
                "hashes": [],
                "size_limit": None,
                "version": 2,
            }
        ).encode()
        begin = 4 * (len(self.samples) + 2) + len(description)
        offsets = [begin]
        for sample in self.samples:
            offsets.append(offsets[-1] + len(sample))
        head = struct.pack(f"<I{len(offsets)}I", len(self.samples), *offsets)
        self.sizes.append(
            put(self.folder, f"{self.name}.{len(self.sizes):05d}.mds", [head, description, *self.samples])
        )
        self.rows += len(self.samples)
        self.samples, self.bytes = [], 0

    def finish(self, classes):
        self.flush()
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        done = {"rows": self.rows, "shards": self.sizes, "classes": classes}
        put(self.folder, f".{self.name}.done", [json.dumps(done).encode()])
        os.fsync(folder)
        os.close(folder)


def main():
    path, folder, name, key = sys.argv[1:]
    try:
        with open(path, "rb") as opened:  # Arrow opens no name that is not UTF-8
            content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)), page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        refuse(f"it cannot be read as Parquet: {error}")
    names = file.schema_arrow.names
    if len(set(names)) < len(names):
        refuse("two of its columns have one name")
    classes = class_labels(file)
    try:
        columns = find_columns(file, classes)
    except (pa.ArrowException, OSError, MemoryError) as error:
        refuse(f"it cannot be read as Parquet: {error or 'there is not enough memory'}")
    keyed = any(column.name == "__key__" for column in columns)
    if keyed and next(column for column in columns if column.name == "__key__").encoding != "str":
        refuse("its column __key__ must hold text: the keys of the samples")
    if not keyed:
        columns.append(Column("__key__", "str", 0, None))
    if len(columns) == 1:
        refuse("it has no columns")
    rows = file.metadata.num_rows
    writer, row = Writer(folder, name, columns, max(ANY_GROWTH, MOST_GROWTH * len(content))), 0
    try:
        for batch in batches(file):
            stored = {}
            for column in columns:
                if column.convert:
                    values = batch.column(batch.schema.get_field_index(column.name))
                    if pa.types.is_dictionary(values.type):
                        values = values.dictionary_decode()
                    stored[column.name] = column.convert(column.name, values, row)
            for i in range(batch.num_rows):
                sample = {name: values[i] for name, values in stored.items()}
                if not keyed:
                    sample["__key__"] = os.fsencode(f"{key}/{row + i:08d}")
                writer.add(sample)
            row += batch.num_rows
    except (pa.ArrowException, OSError, MemoryError) as error:
        refuse(f"after row {row}: {error or 'there is not enough memory'}")
    if row != rows:
        refuse(f"it says that it has {rows} rows, and {row} could be read")
    writer.finish({name: names for name, names in classes.items() if names})


main()
