#include "supervisor/notice_watcher.h"

#include <fstream>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "net/event_loop.h"
#include "net/http_client.h"
#include "net/text_answer.h"
#include "supervisor/imds_watch.h"

namespace millrace {

/// Runs all but construction and destruction on the thread of its loop.
class NoticeWatcher::Impl {
 public:
  Impl(EndpointUrl service, Callbacks callbacks) : callbacks_(std::move(callbacks)), watch_(std::move(service)) {
    loop().Post([this] {
      timer_.emplace(loop());
      Do(watch_.Begin(absl::Now()));
    });
  }

  ~Impl() {
    RunAndWait(loop(), [this] {
      closing_ = true;
      timer_.reset();
      if (call_) call_->Cancel();
    });
  }

 private:
  EventLoop& loop() { return loops_.at(0); }

  void Do(ImdsWatch::Step step) {
    if (!step.problem.empty()) callbacks_.on_problem(step.problem);
    for (const Notice& notice : step.notices) callbacks_.on_notice(notice);
    if (step.call) return Call(*std::move(step.call));
    timer_->Start(absl::ToChronoNanoseconds(step.wait), [this] { Do(watch_.AfterWait(absl::Now())); });
  }

  void Call(TextRequest request) {
    call_ = BeginText(http_, loop(), std::move(request), [this](const TextAnswer& answer) {
      call_.reset();
      if (!closing_) Do(watch_.OnAnswer(answer, absl::Now()));
    });
  }

  const Callbacks callbacks_;
  EventLoops loops_{1};
  ImdsWatch watch_;
  bool closing_ = false;
  std::optional<Timer> timer_;  // of the wait
  std::shared_ptr<HttpCall> call_;
  HttpClient http_{loops_, {.max_connections = 1}};  // the first that goes: waits for the call in flight
};

NoticeWatcher::NoticeWatcher(EndpointUrl service, Callbacks callbacks)
    : impl_(std::make_unique<Impl>(std::move(service), std::move(callbacks))) {}

NoticeWatcher::~NoticeWatcher() = default;

bool IsEc2Instance() {
  // The vendor is set on Nitro and Xen instances.
  std::string vendor;
  if (std::ifstream file("/sys/devices/virtual/dmi/id/sys_vendor");
      std::getline(file, vendor) && vendor == "Amazon EC2")
    return true;
  std::string uuid;
  std::ifstream file("/sys/hypervisor/uuid");
  return std::getline(file, uuid) && uuid.starts_with("ec2");
}

}  // namespace millrace
