#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "errors.h"
#include "process.h"
#include "store/object_store.h"
#include "transfer/object_file.h"

namespace millrace::python {

/// This is _core.ReadFile: one object that is read at any place. Members are called with the GIL held, from any thread,
/// and release it while they wait; signal handlers run meanwhile.
class ReadFileHandle {
 public:
  explicit ReadFileHandle(const std::string& uri);
  ~ReadFileHandle();

  /// Fills the buffer from `offset` on; how many bytes that were.
  size_t ReadInto(uint64_t offset, nb::handle into);
  nb::bytes Read(uint64_t offset, uint64_t size);
  void Close();

  const ObjectInfo& info() const { return info_; }

 private:
  size_t Fill(uint64_t offset, MutableByteSpan into);

  const pid_t maker_ = getpid();
  const std::shared_ptr<Process> process_;
  ObjectInfo info_;
  std::mutex mutex_;               // never locked with the GIL held
  ProcessLocal<ObjectFile> file_;  // null once closed
};

/// This is _core.WriteFile: one object that appears whole when it is committed. It is called as ReadFileHandle is.
class WriteFileHandle {
 public:
  WriteFileHandle(const std::string& uri, bool only_if_absent);
  ~WriteFileHandle();

  size_t Write(nb::handle bytes);
  void Commit();
  void Discard();

 private:
  // Runs `work` with the writer, which it may reset; interruptible. Throws its error, and if there is no writer.
  void WithWriter(absl::FunctionRef<absl::Status()> work);

  const pid_t maker_ = getpid();
  const std::shared_ptr<Process> process_;
  std::stop_source stop_;
  std::mutex mutex_;                   // never locked with the GIL held
  ProcessLocal<ObjectWriter> writer_;  // null once committed or discarded
};

}  // namespace millrace::python
