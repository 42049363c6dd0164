#include "net/name_lookup.h"

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
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
    std::lock_guard lock(answer->mutex);
    if (answer->loop == nullptr) return;
    try {
      answer->loop->Post([answer, error, found = std::move(found)] {
        if (answer->loop != nullptr) answer->done(error, found);
      });
    } catch (const std::exception&) {
      // There is no memory for the answer. Those who wait for it have a timer.
    }
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
