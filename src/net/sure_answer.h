#pragma once

#include <exception>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/log_exception.h"
#include "base/status.h"
#include "net/event_loop.h"

namespace millrace {

/// Returns ResourceExhausted, with a message if there is memory for one.
inline absl::Status OutOfMemory() noexcept {
  try {
    return absl::ResourceExhaustedError(
        "there was not enough memory for the request; run with a smaller --memory, or give the process more");
  } catch (const std::exception&) {
    return {absl::StatusCode::kResourceExhausted, ""};
  }
}

/// This is a callback that always answers. If it is destroyed without having been called, because an exception has
/// ended what should have called it, the callback runs soon, on `loop`, with ResourceExhausted. Move-only; `loop` must
/// outlive it.
template <typename Result>
class SureAnswer {
 public:
  using Callback = absl::AnyInvocable<void(Result)>;

  /// `results` is how many there are, if Result is a list of them.
  SureAnswer(EventLoop& loop, Callback done, size_t results = 1)
      : loop_(&loop), done_(std::move(done)), results_(results) {}
  SureAnswer(SureAnswer&& other) noexcept
      : loop_(other.loop_), done_(std::exchange(other.done_, nullptr)), results_(other.results_) {}
  SureAnswer& operator=(SureAnswer&&) = delete;
  ~SureAnswer() {
    if (done_ != nullptr) AnswerLater();
  }

  void operator()(Result result) { std::exchange(done_, nullptr)(std::move(result)); }

 private:
  static Result Failed(size_t results) {
    if constexpr (std::is_same_v<Result, std::vector<absl::Status>>) {
      return Result(results, OutOfMemory());
    } else {
      return OutOfMemory();
    }
  }

  // If there is no memory to say so later, it is said now: a caller that waits for ever is worse.
  void AnswerLater() noexcept {
    try {
      const auto kept = std::make_shared<Callback>();
      kept->swap(done_);
      try {
        loop_->Post([kept, results = results_] { (*kept)(Failed(results)); });
      } catch (const std::exception&) {
        (*kept)(Failed(results_));
      }
    } catch (const std::exception& error) {
      LogException("s3", error);
      if (done_ != nullptr) CallNow();
    }
  }

  void CallNow() noexcept {
    try {
      std::exchange(done_, nullptr)(Failed(results_));
    } catch (const std::exception& error) {
      LogException("s3", error);
    }
  }

  EventLoop* loop_;
  Callback done_;
  size_t results_;
};

}  // namespace millrace
