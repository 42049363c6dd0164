#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/status.h"

namespace millrace {

/// Holds the calls that one thread has in flight at stores: a window, the first error, and a stop (store/completion.h
/// waits for one call). The thread handles the answers itself while it waits, in the order in which they come. Thus
/// what it knows about its calls needs no lock.
///
///   CallsInFlight calls(options.stop);
///   PutOptions put{.stop = calls.stop()};
///   for (const Object& object : objects) {
///     RETURN_IF_ERROR(calls.WaitForRoom(16));
///     store.Put(object.key, object.bytes, put, calls.Add<absl::StatusOr<ObjectInfo>>([&](auto written) {
///       if (written.ok()) bytes += written->size;
///       return written.status();
///     }));
///   }
///   return calls.WaitForAll();
///
/// Not thread-safe. The callbacks may run on any thread, also within the call. Stores and buffers that the calls use
/// must outlive this object.
class CallsInFlight {
 public:
  /// A request for a stop by `stop` is passed on to stop().
  explicit CallsInFlight(const std::stop_token& stop = {}) : on_stop_(stop, [this] { stop_.request_stop(); }) {}
  /// Requests a stop, and waits for all calls. Their answers are not handled.
  ~CallsInFlight();
  CallsInFlight(const CallsInFlight&) = delete;
  CallsInFlight& operator=(const CallsInFlight&) = delete;

  /// Returns the token for the options of the calls. The first error also requests a stop.
  std::stop_token stop() const { return stop_.get_token(); }

  /// Returns the number of calls whose answers were not handled yet.
  size_t count() const { return count_; }

  /// Returns the callback of one more call. `handle` gets the answer on the thread that waits, exactly once unless the
  /// destructor comes first, and returns an absl::Status. Its captures, such as the memory of a piece, live until then.
  /// It may add calls, but must not wait. After an error it is still called for the other answers.
  template <typename Answer, typename Handle>
  auto Add(Handle handle) {
    auto call = std::make_unique<CallOf<Answer, Handle>>(std::move(handle));
    ++count_;
    return [this, call = std::move(call)](Answer answer) mutable {
      call->answer.emplace(std::move(answer));
      Post(std::move(call));
    };
  }

  /// Handles what has come, and waits until fewer than `most` >= 1 calls are in flight. Returns the first error as
  /// soon as it is known.
  absl::Status WaitForRoom(size_t most);

  /// Handles the answers of all calls, also after an error. Returns the first error.
  absl::Status WaitForAll();

  /// Ends the calls by an error of the owner, as if a handler had returned it. Returns the first error.
  absl::Status Fail(absl::Status status);

 private:
  // One call needs no memory when its answer comes, since callbacks run on event loops.
  struct Call {
    virtual ~Call() = default;
    virtual absl::Status Handle() = 0;
    std::unique_ptr<Call> next;
  };
  template <typename Answer, typename HandleAnswer>
  struct CallOf final : Call {
    explicit CallOf(HandleAnswer handler) : handle(std::move(handler)) {}
    absl::Status Handle() override { return handle(*std::move(answer)); }
    HandleAnswer handle;
    std::optional<Answer> answer;
  };

  void Post(std::unique_ptr<Call> call);
  bool HandleNext(bool wait);

  size_t count_ = 0;
  absl::Status status_;  // the first error
  std::stop_source stop_;
  std::stop_callback<std::function<void()>> on_stop_;

  std::mutex mutex_;
  std::condition_variable came_;
  size_t answered_ = 0;  // calls, from first_ on, which were not handled
  std::unique_ptr<Call> first_;
  std::unique_ptr<Call>* last_ = &first_;  // where the next one goes
};

}  // namespace millrace
