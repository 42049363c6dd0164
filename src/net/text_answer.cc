#include "net/text_answer.h"

#include <exception>
#include <utility>

#include "absl/time/clock.h"
#include "net/http_date.h"

namespace millrace {

namespace {

/// Keeps itself alive until the answer is delivered: the caller may be gone as soon as it has it, while the loop is
/// still in OnDone. All of it is on the loop's thread.
class TextCall final : public HttpCall, public HttpResponseHandler, public std::enable_shared_from_this<TextCall> {
 public:
  TextCall(HttpClient& client, EventLoop& loop, TextRequest request, absl::AnyInvocable<void(TextAnswer)> done)
      : client_(client), loop_(loop), request_(std::move(request)), done_(std::move(done)) {
    HttpHeaders& headers = request_.head.headers;
    if (!headers.Has("host")) headers.Add("Host", HostHeader(request_.endpoint));
    headers.Add("User-Agent", "millrace");
  }

  void Begin() {
    if (request_.limit.count() > 0) {
      timer_.emplace(loop_);
      timer_->Start(request_.limit, [this] {
        late_ = true;
        Cancel();
      });
    }
    Send();
  }

  void Cancel() override {
    const std::shared_ptr<HttpCall> call = call_;  // OnDone may come within
    if (call != nullptr) call->Cancel();
  }
  uint64_t body_bytes() const override { return call_ == nullptr ? 0 : call_->body_bytes(); }

  void OnPhase(HttpPhase) override {}
  HttpBodySink OnHead(HttpResponseHead head) override {
    answer_.head = std::move(head);
    answer_.begun = absl::Now();
    return HttpBodySink::Text(request_.max_text);
  }
  void OnDone(HttpResult result) override {
    const std::shared_ptr<TextCall> self = std::move(self_);
    call_.reset();
    if (result.error == HttpErrorKind::kStale && !late_ && !std::exchange(request_.fresh_connection, true)) {
      try {
        return Send();
      } catch (const std::exception& error) {
        result.detail = error.what();
      }
    }
    timer_.reset();
    if (late_) result.error = HttpErrorKind::kTimeout;
    if (late_) result.detail = "no answer in time";
    answer_.result = std::move(result);
    std::exchange(done_, nullptr)(std::move(answer_));
  }

 private:
  void Send() {
    HttpRequest request{.endpoint = request_.endpoint, .head = request_.head, .body = AsBytes(request_.body)};
    request.fresh_connection = request_.fresh_connection;
    call_ = client_.Start(loop_, std::move(request), *this);
    self_ = shared_from_this();
  }

  HttpClient& client_;
  EventLoop& loop_;
  TextRequest request_;
  absl::AnyInvocable<void(TextAnswer)> done_;
  TextAnswer answer_;
  bool late_ = false;
  std::optional<Timer> timer_;
  std::shared_ptr<HttpCall> call_;
  std::shared_ptr<TextCall> self_;  // in flight
};

}  // namespace

std::string TextAnswer::problem() const {
  if (result.error == HttpErrorKind::kNone) return "";
  return result.detail.empty() ? "the connection failed" : result.detail;
}

std::optional<absl::Time> TextAnswer::date() const {
  return ParseHttpDate(head.headers.Find("date").value_or(""));
}

std::shared_ptr<HttpCall> BeginText(HttpClient& client, EventLoop& loop, TextRequest request,
                                    absl::AnyInvocable<void(TextAnswer)> done) {
  const auto call = std::make_shared<TextCall>(client, loop, std::move(request), std::move(done));
  call->Begin();
  return call;
}

std::future<TextAnswer> AskForText(HttpClient& client, EventLoop& loop, TextRequest request) {
  const auto promise = std::make_shared<std::promise<TextAnswer>>();
  std::future<TextAnswer> answer = promise->get_future();
  loop.Post([&client, &loop, promise, request = std::move(request)]() mutable {
    try {
      BeginText(client, loop, std::move(request),
                [promise](TextAnswer result) { promise->set_value(std::move(result)); });
    } catch (const std::exception& error) {
      TextAnswer none;
      none.result = {.error = HttpErrorKind::kReset, .detail = error.what()};
      promise->set_value(std::move(none));
    }
  });
  return answer;
}

}  // namespace millrace
