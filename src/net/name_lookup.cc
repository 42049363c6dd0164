#include "net/name_lookup.h"

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace millrace {

namespace asio = boost::asio;

/// A call shares this with its thread, which may outlive the loop.
struct NameLookup::Answer {
  std::mutex mutex;
  EventLoop* loop;                                         // nullptr: cancelled
  absl::AnyInvocable<void(Error, const Addresses&)> done;  // on the loop only

  /// Returns false if there is no memory for it now.
  static bool Post(const std::shared_ptr<Answer>& self, Error error, const Addresses& found) {
    std::lock_guard lock(self->mutex);
    if (self->loop == nullptr) return true;
    try {
      self->loop->Post([self, error, found] {
        if (self->loop != nullptr) self->done(error, found);
      });
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
};

NameLookup::NameLookup(EventLoop& loop, Find find) : loop_(loop), find_(std::move(find)) {}

NameLookup::~NameLookup() {
  Cancel();
}

void NameLookup::Start(std::string host, uint16_t port, absl::AnyInvocable<void(Error, const Addresses&)> done) {
  Cancel();
  auto answer = std::make_shared<Answer>();
  answer->loop = &loop_;
  answer->done = std::move(done);
  std::thread([answer, find = find_, host = std::move(host), port]() mutable {
    Error error;
    Addresses found;
    try {
      found = find(host, port, error);
    } catch (const std::exception&) {
      error = asio::error::no_memory;
    }
    while (!Answer::Post(answer, error, found)) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }).detach();
  answer_ = std::move(answer);
}

void NameLookup::Cancel() {
  if (answer_ == nullptr) return;
  std::lock_guard lock(answer_->mutex);
  answer_->loop = nullptr;
}

NameLookup::Addresses NameLookup::FindAddresses(const std::string& host, uint16_t port, Error& error) {
  asio::io_context none;
  const auto found = asio::ip::tcp::resolver(none).resolve(host, std::to_string(port),
                                                           asio::ip::resolver_base::numeric_service, error);
  return {found.begin(), found.end()};
}

}  // namespace millrace
