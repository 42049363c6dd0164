#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mount/block_tier.h"
#include "mount/key_order.h"
#include "mount/order_file.h"
#include "mount/remote_tree.h"

namespace millrace {

/// Reads files before they are opened. These are the files that follow in the order of keys once a program opens them
/// in that order (key_order.h), at several places at a time. They are also those that a file of the order names
/// (order_file.h). Their bytes go to the tier. Thread-safe; a thread of its own makes the requests, and nobody waits
/// for it.
///
/// Bytes that the kernel still has of an earlier pass need not be read. Once the kernel has asked for no bytes of
/// several files in a row, nothing is read ahead until it asks again.
class LookAhead {
 public:
  /// Files of the order that are larger are not read.
  static constexpr uint64_t kMaxOrderBytes = uint64_t{1} << 30;

  /// Finds a file in another source, which does not ask the store.
  using Known = std::function<std::optional<Node>(const std::string& key)>;

  /// `order_path`: "" for none; if the file is replaced, it is read again. All others must outlive it.
  LookAhead(ObjectStore& store, BlockTier& tier, const RemoteTree& tree, std::string prefix, AheadLimits limits,
            std::string order_path, Known known = nullptr);
  ~LookAhead();
  LookAhead(const LookAhead&) = delete;
  LookAhead& operator=(const LookAhead&) = delete;

  /// Notes that a program has opened the file.
  void OnOpen(const std::string& key);
  /// The kernel asks for bytes of a file that was opened, for the first time.
  void OnRead();
  /// A file that is not empty was closed, and the kernel has asked for none of its bytes.
  void OnUnread();
  /// Returns the file if it is known without asking the store, as long as that is fresh.
  std::optional<Node> Find(const std::string& key) const;
  /// The file is another one now, or gone.
  void Forget(const std::string& key);

 private:
  struct Pass {  // of a program over files in the order of keys
    uint64_t id = 0;
    KeyOrder order;
    uint64_t used = 0;
    size_t unseen = 0;  // files that were opened since the thread was woken for it
  };
  struct Answer {  // of a listing, or of a HEAD
    uint64_t pass = 0;
    uint64_t generation = 0;
    std::string key;
    absl::StatusOr<ListPage> page;
    absl::StatusOr<ObjectInfo> info;
  };
  struct Answers {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Answer> came;
    bool wake = false;
    bool stop = false;
  };
  /// Holds the requests that are sent once the mutex is free: programs that open files wait for it.
  struct Requests {
    struct Page {
      uint64_t pass = 0;
      std::string after;
    };
    uint64_t generation = 0;
    std::vector<Page> pages;
    std::vector<std::string> keys;  // what they are
    std::vector<Node> files;
  };
  using Lock = std::unique_lock<std::mutex>;

  void Run();
  void Wake();
  void Take(Answer answer);
  void Go();
  bool Begin(const std::string& key);
  void ReadNamed(const std::string& key);
  void Name(const Node& node);
  void Read(const Node& node);
  void Send(Requests requests);
  void Fetch(const Node& node);
  void LetGo();
  void TakeOrder(std::string text);
  std::optional<std::string> ReadOrder();
  std::optional<Node> FindLocked(const std::string& key) const;

  ObjectStore& store_;
  BlockTier& tier_;
  const RemoteTree& tree_;
  const std::string prefix_;
  const AheadLimits limits_;
  const std::string order_path_;
  const Known known_;

  std::atomic<int> unread_in_row_{0};

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Pass>> passes_;
  std::deque<std::pair<std::string, std::string>> last_;  // folders, and the file that was opened last in each
  size_t evidence_ = 0;                                   // pairs of files in ascending order since the last pass began
  size_t needed_ = 1;                                     // more each time that a pass came to nothing
  uint64_t opens_ = 0;
  uint64_t next_id_ = 1;
  uint64_t generation_ = 0;  // of Forget: listings from before are not believed
  std::unique_ptr<std::string> order_text_;
  std::optional<OrderFile> order_;
  std::chrono::steady_clock::time_point woken_{};
  std::map<std::string, Node> named_;  // by the file of the order, and looked at
  std::deque<std::string> named_turns_;

  // Only the thread uses these. The mutex guards skipped_, which the other functions also change.
  std::string order_version_;
  std::chrono::steady_clock::time_point order_looked_{};
  Requests requests_;
  std::deque<Node> skipped_;  // the last ones that were not read since the kernel seems to have them
  std::deque<std::pair<std::string, std::shared_ptr<BlockTier::Hold>>> holds_;  // by key
  uint64_t held_bytes_ = 0;                                                     // of them
  uint64_t average_bytes_ = 0;                                                  // of what was read of a file, lately

  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
  std::thread thread_;
};

}  // namespace millrace
