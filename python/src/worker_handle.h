#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "process.h"
#include "service/worker.h"

namespace millrace::python {

namespace nb = nanobind;

/// This is _core.Worker: a worker of the data service within this process, which runs functions of trainers in it.
/// Members are called with the GIL held.
class WorkerHandle {
 public:
  /// `check` and `apply` are the two of RowFunctions, on the worker's threads (millrace/worker.py). They live until
  /// Close.
  WorkerHandle(const std::string& listen, std::vector<std::string> allow, const std::string& token_file,
               const std::string& tls, const std::string& cache, const std::string& cache_size,
               const std::string& cache_tenant, nb::object check, nb::object apply);
  ~WorkerHandle();

  /// Returns HOST:PORT.
  const std::string& address() const { return address_; }
  /// Ends all sessions, and waits for the functions that run. May be called twice.
  void Close();
  /// The end of the interpreter calls this for all workers of this process that are still open.
  static void CloseAll();

 private:
  const pid_t maker_ = getpid();
  const std::shared_ptr<Process> process_;
  std::string address_;
  ProcessLocal<Worker> worker_;
};

}  // namespace millrace::python
