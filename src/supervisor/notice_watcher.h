#pragma once

#include <functional>
#include <memory>
#include <string>

#include "aws/endpoint.h"
#include "supervisor/notice.h"

namespace millrace {

/// Asks the instance metadata service for notices, on a thread of its own, until it is destroyed.
class NoticeWatcher {
 public:
  /// The functions are called on that thread.
  struct Callbacks {
    std::function<void(const Notice&)> on_notice;
    std::function<void(const std::string&)> on_problem;  // a sentence
  };
  NoticeWatcher(EndpointUrl service, Callbacks callbacks);
  ~NoticeWatcher();
  NoticeWatcher(const NoticeWatcher&) = delete;
  NoticeWatcher& operator=(const NoticeWatcher&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns true if this machine is an instance of EC2, as its firmware says. It asks no service.
bool IsEc2Instance();

}  // namespace millrace
