#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "base/bytes.h"

namespace millrace::python {

/// Holds the contiguous memory of a Python object, which stays where it is while this lives. Made and destroyed with
/// the GIL held.
class BufferView {
 public:
  /// `flags` are those of PyObject_GetBuffer, such as PyBUF_WRITABLE. Throws Python's error if the object has no such
  /// memory.
  BufferView(nanobind::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags | PyBUF_C_CONTIGUOUS) != 0) throw nanobind::python_error();
  }
  ~BufferView() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  BufferView(BufferView&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  BufferView& operator=(BufferView&&) = delete;

  MutableByteSpan span() const { return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)}; }

 private:
  Py_buffer view_{};
};

}  // namespace millrace::python
