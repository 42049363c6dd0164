#include "supervisor/notice_watcher.h"

#include <charconv>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "net/event_loop.h"
#include "net/http_client.h"
#include "net/http_date.h"
#include "supervisor/imds_watch.h"

namespace millrace {

namespace {

constexpr std::chrono::seconds kTimeout{2};  // of one call
constexpr size_t kMaxAnswerBytes = 64 << 10;
constexpr std::string_view kTtlHeader = "x-aws-ec2-metadata-token-ttl-seconds";

std::optional<absl::Duration> TtlOf(const HttpHeaders& headers) {
  const std::string_view text = headers.Find(kTtlHeader).value_or("");
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return absl::Seconds(seconds);
}

}  // namespace

/// All but construction and destruction on the thread of its loop.
class NoticeWatcher::Impl final : public HttpResponseHandler {
 public:
  Impl(EndpointUrl service, Callbacks callbacks) : service_(std::move(service)), callbacks_(std::move(callbacks)) {
    loop().Post([this] {
      timer_.emplace(loop());
      Do(watch_.Begin(absl::Now()));
    });
  }

  ~Impl() override {
    RunAndWait(loop(), [this] {
      closing_ = true;
      timer_.reset();
      if (call_) call_->Cancel();
    });
  }

  void OnPhase(HttpPhase) override {}

  HttpBodySink OnHead(const HttpResponseHead& head) override {
    answer_.status = head.status;
    answer_.token_ttl = TtlOf(head.headers);
    answer_.date = ParseHttpDate(head.headers.Find("date").value_or(""));
    return HttpBodySink::Text(kMaxAnswerBytes);
  }

  void OnDone(HttpResult result) override {
    call_.reset();
    if (closing_) return;
    timer_->Cancel();
    if (result.error != HttpErrorKind::kNone) answer_.status = 0;
    answer_.body = std::move(result.text);
    Do(watch_.OnAnswer(std::exchange(answer_, {}), absl::Now()));
  }

 private:
  EventLoop& loop() { return loops_.at(0); }

  void Do(ImdsWatch::Step step) {
    if (!step.problem.empty()) callbacks_.on_problem(step.problem);
    for (const Notice& notice : step.notices) callbacks_.on_notice(notice);
    if (step.call) return Call(*std::move(step.call));
    timer_->Start(absl::ToChronoNanoseconds(step.wait), [this] { Do(watch_.AfterWait(absl::Now())); });
  }

  void Call(ImdsRequest call) {
    HttpRequest request;
    request.endpoint = service_.server;
    request.head = {std::move(call.method), service_.base_path + call.path, {}};
    request.head.headers.Add("Host", HostHeader(service_.server));
    request.head.headers.Add("User-Agent", "millrace");
    request.head.headers.Add(call.header, call.value);
    // A kept connection may have ended; a new one costs nothing at this rate.
    request.fresh_connection = true;
    call_ = http_.Start(loop(), std::move(request), *this);
    timer_->Start(kTimeout, [this] {
      const std::shared_ptr<HttpCall> late = call_;
      if (late) late->Cancel();
    });
  }

  const EndpointUrl service_;
  const Callbacks callbacks_;
  EventLoops loops_{1};
  ImdsWatch watch_;
  bool closing_ = false;
  std::optional<Timer> timer_;  // of the call in flight, or of the wait
  std::shared_ptr<HttpCall> call_;
  ImdsAnswer answer_;
  HttpClient http_{loops_, {.max_connections = 1}};  // the first that goes: waits for the call in flight
};

NoticeWatcher::NoticeWatcher(EndpointUrl service, Callbacks callbacks)
    : impl_(std::make_unique<Impl>(std::move(service), std::move(callbacks))) {}

NoticeWatcher::~NoticeWatcher() = default;

bool IsEc2Instance() {
  // Of Nitro and Xen instances.
  std::string vendor;
  if (std::ifstream file("/sys/devices/virtual/dmi/id/sys_vendor");
      std::getline(file, vendor) && vendor == "Amazon EC2")
    return true;
  std::string uuid;
  std::ifstream file("/sys/hypervisor/uuid");
  return std::getline(file, uuid) && uuid.starts_with("ec2");
}

}  // namespace millrace
