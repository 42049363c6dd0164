#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "net/http_client.h"
#include "net/http_server.h"
#include "net/text_answer.h"
#include "service/token_proof.h"
#include "supervisor/group_board.h"

namespace millrace {

/// The coordinator of a job of several groups: hosts tell it by HTTP how they are, and hear how the job ends. A host
/// that does not prove that it knows the job's secret (service/token_proof.h) is not heard.
class GroupCoordinator {
 public:
  /// `say` gets a text for each host that is lost. The errors of HttpServer::Start. `loops` outlive it.
  static absl::StatusOr<std::unique_ptr<GroupCoordinator>> Start(EventLoops& loops, const std::string& host,
                                                                 uint16_t port, std::string token,
                                                                 GroupBoard::Options options,
                                                                 std::function<void(const std::string&)> say);
  ~GroupCoordinator();
  GroupCoordinator(const GroupCoordinator&) = delete;
  GroupCoordinator& operator=(const GroupCoordinator&) = delete;

  /// Returns the port on which it listens.
  uint16_t port() const { return server_->port(); }
  /// There is a verdict, and all hosts have heard it.
  bool AllKnow() const;

 private:
  class Handler;
  explicit GroupCoordinator(std::unique_ptr<Handler> handler);
  std::unique_ptr<Handler> handler_;
  std::unique_ptr<HttpServer> server_;
};

/// One host of the job: tells the coordinator every second how it is, on a thread of its own.
class GroupMember {
 public:
  struct Options {
    HttpEndpoint coordinator;
    std::string token;
    std::string host;  // a name that no other one has
    std::string group;
    bool is_main = false;                         // that group is the main one
    int lost_status = 75;                         // if the coordinator does not answer any more,
    std::chrono::milliseconds lost_after{6'000};  // for so long
    std::function<void(const std::string&)> say;  // told of the coordinator's first answer, or why it does not come
    std::function<void()> wake;                   // a verdict has come; again and again then
  };
  GroupMember(EventLoops& loops, Options options);
  ~GroupMember();
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;

  /// Sets its state from now on.
  void Report(HostState state, int status);
  /// The same, for a host that ends soon, whatever the coordinator says: `wake` is called again and again from now on.
  void Leave(HostState state, int status);
  std::optional<JobVerdict> verdict() const;

 private:
  using Clock = std::chrono::steady_clock;
  void Run();
  void Ask(HostState state, int status);
  void OnAnswer(HostState state, int status, TextAnswer answer);
  void End(JobVerdict verdict);
  void OnNoAnswer(HostState state, int status, const std::string& why);

  EventLoops& loops_;
  const Options options_;
  HttpClient client_;
  std::optional<TokenKey> key_;  // once the coordinator has proved to know the secret; of thread_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HostState state_ = HostState::kRuns;
  int status_ = 0;
  bool news_ = true;
  bool leaving_ = false;
  bool stopping_ = false;
  std::optional<JobVerdict> verdict_;
  const Clock::time_point begin_ = Clock::now();
  std::optional<Clock::time_point> answered_;  // last
  std::optional<Clock::time_point> said_;      // why there is no answer; last
  std::thread thread_;
};

}  // namespace millrace
