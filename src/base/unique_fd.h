#pragma once

#include <unistd.h>

#include <utility>

namespace millrace {

/// Owns a file descriptor, closed when its owner goes. Move-only; owners that share one hold a shared_ptr to it.
class UniqueFd {
 public:
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  /// Returns false when opening failed; errno says why until the next call.
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  /// Leaves closing it to the caller.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace millrace
