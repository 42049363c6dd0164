#include "file_handle.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <utility>

#include "bindings.h"
#include "buffer_view.h"
#include "gil_release.h"
#include "interruptible.h"
#include "store/blocking.h"

namespace millrace::python {

namespace {

constexpr std::string_view kEnded = "I/O operation on a closed file";

[[noreturn]] void ThrowEnded() {
  throw nb::value_error(std::string(kEnded).c_str());
}

Location LocationOf(Process& process, const std::string& uri) {
  return ValueOrThrow(WithoutGil([&] { return process.stores.OpenObjectInTree(uri); }));
}

}  // namespace

// ---- Reading

ReadFileHandle::ReadFileHandle(const std::string& uri) : process_(CurrentProcess()) {
  const Location at = LocationOf(*process_, uri);
  const auto open = [&](const std::stop_token& stop) {
    return ObjectFile::Open(*at.store, process_->runtime.memory(), at.prefix, stop);
  };
  file_.reset(RunInterruptibly(open).release());
  info_ = file_->info();
}

ReadFileHandle::~ReadFileHandle() {
  if (maker_ == getpid()) Close();
}

size_t ReadFileHandle::Fill(uint64_t offset, MutableByteSpan into) {
  CheckOwnProcess(maker_, "file");
  std::optional<size_t> held;
  bool closed = false;
  {
    const GilRelease release;
    const std::lock_guard lock(mutex_);
    closed = file_ == nullptr;
    // Most small reads are answered here, without a thread.
    if (!closed) held = file_->ReadHeld(offset, into);
  }
  if (closed) ThrowEnded();
  if (*held == into.size()) return *held;
  return *held + RunInterruptibly([&](const std::stop_token& stop) -> absl::StatusOr<size_t> {
    const std::lock_guard lock(mutex_);
    if (file_ == nullptr) return size_t{0};  // closed meanwhile
    return file_->Read(offset + *held, into.subspan(*held), stop);
  });
}

size_t ReadFileHandle::ReadInto(uint64_t offset, nb::handle into) {
  const BufferView memory(into, PyBUF_WRITABLE);
  return Fill(offset, memory.span());
}

nb::bytes ReadFileHandle::Read(uint64_t offset, uint64_t size) {
  const uint64_t there = offset < info_.size ? info_.size - offset : 0;
  const uint64_t count = std::min(size, there);
  PyObject* const bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count));
  if (bytes == nullptr) throw nb::python_error();
  auto result = nb::steal<nb::bytes>(bytes);
  Fill(offset, {reinterpret_cast<std::byte*>(PyBytes_AsString(bytes)), count});
  return result;
}

void ReadFileHandle::Close() {
  CheckOwnProcess(maker_, "file");
  const GilRelease release;
  const std::lock_guard lock(mutex_);
  file_.reset();
}

// ---- Writing

WriteFileHandle::WriteFileHandle(const std::string& uri, bool only_if_absent) : process_(CurrentProcess()) {
  const Location at = LocationOf(*process_, uri);
  PutOptions options;
  options.only_if_absent = only_if_absent;
  options.stop = stop_.get_token();
  writer_.reset(ValueOrThrow(WithoutGil([&] { return at.store->Write(at.prefix, std::move(options)); })).release());
}

WriteFileHandle::~WriteFileHandle() {
  if (maker_ == getpid()) Discard();
}

void WriteFileHandle::WithWriter(absl::FunctionRef<absl::Status()> work) {
  bool ended = false;
  const auto run = [&](const std::stop_token& stop) {
    const std::stop_callback on_stop(stop, [this] { stop_.request_stop(); });
    const std::lock_guard lock(mutex_);
    ended = writer_ == nullptr;
    return ended ? absl::OkStatus() : work();
  };
  RunInterruptibly(run);
  if (ended) ThrowEnded();
}

size_t WriteFileHandle::Write(nb::handle bytes) {
  CheckOwnProcess(maker_, "file");
  const BufferView memory(bytes, PyBUF_SIMPLE);
  WithWriter([&] { return writer_->Append(memory.span()); });
  return memory.span().size();
}

void WriteFileHandle::Commit() {
  CheckOwnProcess(maker_, "file");
  WithWriter([this] {
    const absl::Status status = writer_->Commit().status();
    writer_.reset();
    return status;
  });
}

void WriteFileHandle::Discard() {
  CheckOwnProcess(maker_, "file");
  const GilRelease release;
  stop_.request_stop();
  const std::lock_guard lock(mutex_);
  writer_.reset();
}

void BindFiles(nb::module_& module) {
  nb::class_<ReadFileHandle>(module, "ReadFile")
      .def(nb::init<const std::string&>(), nb::arg("uri"))
      .def("read_into", &ReadFileHandle::ReadInto, nb::arg("offset"), nb::arg("into"))
      .def("read", &ReadFileHandle::Read, nb::arg("offset"), nb::arg("size"))
      .def("close", &ReadFileHandle::Close)
      .def_prop_ro("size", [](const ReadFileHandle& self) { return self.info().size; })
      .def_prop_ro("etag", [](const ReadFileHandle& self) { return ToPyText(self.info().etag); });
  nb::class_<WriteFileHandle>(module, "WriteFile")
      .def(nb::init<const std::string&, bool>(), nb::arg("uri"), nb::arg("only_if_absent"))
      .def("write", &WriteFileHandle::Write, nb::arg("data"))
      .def("commit", &WriteFileHandle::Commit)
      .def("discard", &WriteFileHandle::Discard);
}

}  // namespace millrace::python
