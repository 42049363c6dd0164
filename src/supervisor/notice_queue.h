#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "supervisor/notice.h"

namespace millrace {

/// Passes notices from the thread of a NoticeWatcher to the supervisor. Thread-safe.
class NoticeQueue {
 public:
  struct Content {
    std::vector<Notice> notices;
    std::vector<std::string> problems;
  };

  void Add(const Notice& notice) {
    const std::lock_guard lock(mutex_);
    content_.notices.push_back(notice);
  }
  void AddProblem(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    content_.problems.push_back(problem);
  }
  Content Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(content_, {});
  }

 private:
  std::mutex mutex_;
  Content content_;
};

}  // namespace millrace
