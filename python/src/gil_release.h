#pragma once

#include <Python.h>

/// Lets other Python threads run while C++ works or waits. It replaces nanobind::gil_scoped_release because of one
/// case: a daemon thread that asks for the GIL while the interpreter ends. CPython up to 3.13 unwinds such a thread,
/// which ends the process when it meets a destructor (https://docs.python.org/3/c-api/init.html, PyEval_RestoreThread).
/// Here such a thread waits for ever instead, as it does from CPython 3.14 on.

namespace millrace::python {

/// Releases the GIL, which the thread must hold, and takes it again at the end of the scope.
class GilRelease {
 public:
  GilRelease();
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

/// Returns what `work` returns, which runs without the GIL.
template <typename Work>
auto WithoutGil(Work work) {
  const GilRelease release;
  return work();
}

/// From here on only this thread, the one that ends the interpreter, takes the GIL; returns when no other is about to.
/// Called once, by atexit, with the GIL held.
void KeepGilFromOtherThreads();

}  // namespace millrace::python
