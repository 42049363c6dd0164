#include "job/group_link.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/crypto.h"
#include "base/hex.h"
#include "net/text_answer.h"

namespace millrace {

namespace {

using LinkClock = std::chrono::steady_clock;

constexpr std::string_view kGroupPath = "/millrace/group";
constexpr std::string_view kGroupChallenge = "/millrace/challenge";
constexpr const char* kGroupPurpose = "group";
constexpr size_t kMaxGroupText = 8192;
constexpr size_t kMaxHostConnections = 4096;  // of hosts, which have two at most
constexpr std::chrono::milliseconds kReportEvery{1'000};
constexpr std::chrono::milliseconds kWakeEvery{200};
constexpr std::chrono::milliseconds kAnswerWithin{1'500};
constexpr std::chrono::minutes kCoordinatorAppears{15};
// Hosts do not start at one moment; after that it is said that the coordinator does not answer, and how often again.
constexpr std::chrono::seconds kSayAfter{2};
constexpr std::chrono::minutes kSayAgain{1};

HttpReply GroupReply(int status, std::string text) {
  HttpReply reply;
  reply.status = status;
  reply.headers.Add("Content-Type", "application/json");
  reply.body.emplace_back(SendText{std::move(text)});
  return reply;
}

/// Represents a request whose body does not matter.
class NoBody final : public HttpExchange {
 public:
  void OnBody(ByteSpan) override {}
  void OnBodyEnd() override {}
};

// Returns the text that the proof of a report is made of.
std::string GroupText(const HttpRequestHead& head) {
  return fmt::format("{}\n{}\n{}", head.method, head.target, head.headers.Find(kDigestHeader).value_or(""));
}

HttpClientOptions LinkOptions() {
  HttpClientOptions options;
  options.max_connections = 2;
  options.connect_timeout = options.first_byte_timeout = options.stall_timeout = kAnswerWithin;
  return options;
}

}  // namespace

// ---- The coordinator

class GroupCoordinator::Handler final : public HttpHandler {
 public:
  Handler(std::string token, GroupBoard::Options options, std::function<void(const std::string&)> say)
      : gate_(std::move(token), kGroupPurpose), say_(std::move(say)), board_(std::move(options), LinkClock::now()) {}

  std::unique_ptr<HttpExchange> OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                          HttpResponder responder) override {
    if (head.target == kGroupChallenge) {
      responder.Send(GroupReply(200, gate_.Answer(head.headers.Find(kNonceHeader).value_or(""))));
      return std::make_unique<NoBody>();
    }
    const std::optional<std::string_view> digest = head.headers.Find(kDigestHeader);
    const TokenGate::Verdict verdict = gate_.Check(head.headers.Find(kProofHeader), GroupText(head));
    if (verdict != TokenGate::Verdict::kGood) {
      HttpReply reply = GroupReply(401, "the coordinator has another token");
      if (verdict == TokenGate::Verdict::kStale) reply.headers.Add(kStaleProofHeader, "1");
      responder.Send(std::move(reply));
      return std::make_unique<NoBody>();
    }
    if (head.method != "POST" || head.target != kGroupPath || facts.content_length.value_or(SIZE_MAX) > kMaxGroupText) {
      responder.Send(GroupReply(400, "this is the coordinator of a job"));
      return std::make_unique<NoBody>();
    }
    return std::make_unique<Report>(*this, std::string(digest.value_or("")), std::move(responder));
  }

  bool AllKnow() const {
    const std::lock_guard lock(mutex_);
    return board_.AllKnow(LinkClock::now());
  }

 private:
  class Report final : public HttpExchange {
   public:
    Report(Handler& handler, std::string digest, HttpResponder responder)
        : handler_(handler), digest_(std::move(digest)), responder_(std::move(responder)) {}
    void OnBody(ByteSpan bytes) override { text_.append(AsText(bytes)); }
    void OnBodyEnd() override {
      HttpResponder responder = std::move(responder_);  // this may end with the answer
      if (!handler_.gate_.is_open() && HexEncode(Sha256(AsBytes(text_))) != digest_) {
        return responder.Send(GroupReply(401, "the coordinator has another token"));
      }
      responder.Send(handler_.Answer(text_));
    }

   private:
    Handler& handler_;
    const std::string digest_;  // that the proof of the request covers
    HttpResponder responder_;
    std::string text_;
  };

  HttpReply Answer(const std::string& text) {
    const nlohmann::json report = nlohmann::json::parse(text, nullptr, false);
    const auto word = [&report](const char* name) {
      const auto found = report.is_object() ? report.find(name) : report.end();
      return report.is_object() && found != report.end() && found->is_string() ? found->get<std::string>() : "";
    };
    const std::string state = word("state");
    const bool known = state == "runs" || state == "succeeded" || state == "failed";
    if (!known || word("host").empty()) return GroupReply(400, "this is no report of a host");
    const int status =
        report.contains("status") && report["status"].is_number_integer() ? report["status"].get<int>() : 1;
    const HostState parsed = state == "runs"        ? HostState::kRuns
                             : state == "succeeded" ? HostState::kSucceeded
                                                    : HostState::kFailed;
    const std::lock_guard lock(mutex_);
    const LinkClock::time_point now = LinkClock::now();
    if (!board_.OnReport(word("host"), word("group"), parsed, status, now)) {
      return GroupReply(400, "the coordinator's job has no such group");
    }
    for (const std::string& host : board_.TakeLost(now)) {
      say_(fmt::format("nothing is heard of {} any more; the job continues without it", host));
    }
    nlohmann::json answer = {{"end", false}};
    if (const std::optional<JobVerdict>& verdict = board_.Verdict(now)) {
      answer = {{"end", true}, {"status", verdict->status}, {"why", verdict->why}};
    }
    return GroupReply(200, answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  const TokenGate gate_;
  const std::function<void(const std::string&)> say_;
  mutable std::mutex mutex_;
  GroupBoard board_;
};

GroupCoordinator::GroupCoordinator(std::unique_ptr<Handler> handler) : handler_(std::move(handler)) {}

GroupCoordinator::~GroupCoordinator() = default;

absl::StatusOr<std::unique_ptr<GroupCoordinator>> GroupCoordinator::Start(EventLoops& loops, const std::string& host,
                                                                          uint16_t port, std::string token,
                                                                          GroupBoard::Options options,
                                                                          std::function<void(const std::string&)> say) {
  std::unique_ptr<GroupCoordinator> made(
      new GroupCoordinator(std::make_unique<Handler>(std::move(token), std::move(options), std::move(say))));
  HttpServerOptions server{.host = host, .port = port};
  server.max_connections = kMaxHostConnections;
  server.max_per_address = kMaxHostConnections / 4;
  ASSIGN_OR_RETURN(made->server_, HttpServer::Start(loops, std::move(server), *made->handler_));
  return made;
}

bool GroupCoordinator::AllKnow() const {
  return handler_->AllKnow();
}

// ---- A member

GroupMember::GroupMember(EventLoops& loops, Options options)
    : loops_(loops), options_(std::move(options)), client_(loops, LinkOptions()), thread_([this] { Run(); }) {}

GroupMember::~GroupMember() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void GroupMember::Report(HostState state, int status) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  status_ = status;
  news_ = true;
  changed_.notify_all();
}

void GroupMember::Leave(HostState state, int status) {
  Report(state, status);
  const std::lock_guard lock(mutex_);
  leaving_ = true;
}

std::optional<JobVerdict> GroupMember::verdict() const {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

void GroupMember::End(JobVerdict verdict) {
  const std::lock_guard lock(mutex_);
  if (!verdict_) verdict_ = std::move(verdict);
}

void GroupMember::Ask(HostState state, int status) {
  const char* word = state == HostState::kRuns ? "runs" : state == HostState::kSucceeded ? "succeeded" : "failed";
  const nlohmann::json report = {
      {"host", options_.host}, {"group", options_.group}, {"state", word}, {"status", status}};
  TextRequest request{.endpoint = options_.coordinator,
                      .head = {"POST", std::string(kGroupPath), {}},
                      .body = report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  request.head.headers.Add("Host", "coordinator");
  request.max_text = kMaxGroupText;
  if (!options_.token.empty() && !key_) {
    TextRequest challenge{.endpoint = options_.coordinator, .head = {"GET", std::string(kGroupChallenge), {}}};
    TokenKey key(options_.token, kGroupPurpose);
    challenge.head.headers.Add("Host", "coordinator");
    challenge.head.headers.Add(kNonceHeader, key.nonce());
    challenge.max_text = kMaxGroupText;
    TextAnswer answer = AskForText(client_, loops_.Next(), std::move(challenge)).get();
    const bool is_answer = answer.result.error == HttpErrorKind::kNone && answer.head.status == 200;
    if (is_answer && key.Accept(answer.result.text)) {
      key_ = std::move(key);
    } else {
      if (is_answer) {  // whoever it is, it does not know the secret
        answer.head.status = 401;
        answer.result.text = "the coordinator has another token";
      }
      return OnAnswer(state, status, std::move(answer));
    }
  }
  if (key_) {
    request.head.headers.Add(kDigestHeader, HexEncode(Sha256(AsBytes(request.body))));
    request.head.headers.Add(kProofHeader, key_->Prove(GroupText(request.head)));
  }
  TextAnswer answer = AskForText(client_, loops_.Next(), std::move(request)).get();
  if (answer.head.status == 401 && answer.head.headers.Has(kStaleProofHeader)) {
    key_.reset();  // the coordinator was started again; the next report asks it
    answer.head.status = 503;
  }
  OnAnswer(state, status, std::move(answer));
}

void GroupMember::OnAnswer(HostState state, int status, TextAnswer text_answer) {
  const auto& [head, begun, result] = text_answer;
  const int status_code = head.status;
  const Clock::time_point now = Clock::now();
  if (result.error == HttpErrorKind::kNone && status_code == 200) {
    if (!answered_) options_.say("the coordinator has answered");
    answered_ = now;
    const nlohmann::json answer = nlohmann::json::parse(result.text, nullptr, false);
    const bool has_end = answer.is_object() && answer.contains("end") && answer["end"].is_boolean();
    if (has_end && answer["end"].get<bool>()) {
      const bool has_status = answer.contains("status") && answer["status"].is_number_integer();
      const bool has_why = answer.contains("why") && answer["why"].is_string();
      End({has_status ? answer["status"].get<int>() : 1, has_why ? answer["why"].get<std::string>() : ""});
    }
  } else if (result.error == HttpErrorKind::kNone && (status_code == 400 || status_code == 401)) {
    End({1, fmt::format("the coordinator {} refuses this host: {}", options_.coordinator.host, result.text)});
  } else if (answered_ && now - *answered_ > options_.lost_after) {
    End({options_.lost_status, fmt::format("the coordinator {} does not answer any more", options_.coordinator.host)});
  } else if (!answered_) {
    OnNoAnswer(state, status,
               result.error == HttpErrorKind::kNone ? fmt::format("HTTP status {}", status_code) : result.detail);
  }
}

// It may start late. A host that serves ends at last; a trainer does not need it, and ends as its command does.
void GroupMember::OnNoAnswer(HostState state, int status, const std::string& why) {
  const Clock::time_point now = Clock::now();
  if (now - begin_ > (said_ ? *said_ - begin_ + kSayAgain : kSayAfter)) {
    said_ = now;
    options_.say(fmt::format("the coordinator {}:{} does not answer ({}); it is asked every second",
                             options_.coordinator.host, options_.coordinator.port, why));
  }
  if (now - begin_ <= kCoordinatorAppears || (state == HostState::kRuns && options_.is_main)) return;
  End({state == HostState::kRuns ? 1 : status, fmt::format("the coordinator {} has not appeared within {} minutes",
                                                           options_.coordinator.host, kCoordinatorAppears.count())});
}

void GroupMember::Run() {
  std::unique_lock lock(mutex_);
  Clock::time_point asked{};
  while (!stopping_) {
    if (std::exchange(news_, false) || Clock::now() - asked >= kReportEvery) {
      asked = Clock::now();
      const HostState state = state_;
      const int status = status_;
      lock.unlock();
      Ask(state, status);
      lock.lock();
    }
    const bool wakes = verdict_ || leaving_;
    if (wakes) {
      lock.unlock();
      options_.wake();
      lock.lock();
    }
    changed_.wait_for(lock, wakes ? kWakeEvery : kReportEvery, [this] { return stopping_ || news_; });
  }
}

}  // namespace millrace
