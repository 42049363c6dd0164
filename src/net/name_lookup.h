#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "net/event_loop.h"

namespace millrace {

/// Looks host names up for a loop:
///
///     lookup_.Start("example.com", 443, [](boost::system::error_code error, std::vector<Endpoint> found) {...});
///
/// getaddrinfo blocks, takes up to minutes if no name server answers, and cannot be interrupted. So it runs on a
/// detached thread, which nobody waits for: neither the destructor nor the end of the process. Used on the loop's
/// thread only.
class NameLookup {
 public:
  using Error = boost::system::error_code;
  using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;
  using Find = std::function<Addresses(const std::string& host, uint16_t port, Error& error)>;

  /// `find` is for tests; it runs on the detached thread.
  explicit NameLookup(EventLoop& loop, Find find = FindAddresses);
  ~NameLookup();  // cancels
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  /// Calls `done` on the loop. Throws std::system_error if the system refuses a thread.
  void Start(std::string host, uint16_t port, absl::AnyInvocable<void(Error, const Addresses&)> done);

  /// No call of Start before this one answers any more.
  void Cancel();

 private:
  struct Answer;

  static Addresses FindAddresses(const std::string& host, uint16_t port, Error& error);

  EventLoop& loop_;
  const Find find_;
  std::shared_ptr<Answer> answer_;  // of the last call
};

}  // namespace millrace
