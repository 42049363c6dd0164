#include "aws/credential_loader.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/time/clock.h"
#include "aws/credential_chain.h"
#include "aws/credential_flow.h"
#include "aws/credential_process.h"
#include "aws/request_log.h"
#include "base/log.h"
#include "base/log_exception.h"
#include "base/rng.h"
#include "net/sure_answer.h"
#include "net/text_answer.h"

namespace millrace {

namespace {

constexpr std::chrono::seconds kProcessLimit{60};

// A token that is not kept works all the same, until it is needed again.
absl::StatusOr<std::string> KeepFile(const AwsEnvironment& environment, const WriteFileAction& file) {
  if (!environment.write_file) return std::string();
  const absl::Status written = environment.write_file(file.path, file.contents);
  if (written.ok()) return std::string();
  Log(LogLevel::kWarning, "s3",
      fmt::format("the renewed SSO token cannot be kept, so that the next program may have to log in again: {}",
                  ToStd(written.message())));
  return written;
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

/// This is one fetch. All of it is on its loop's thread, except for what the CPU pool does and says so.
class CredentialLoader::Run final : public std::enable_shared_from_this<Run> {
 public:
  Run(CredentialLoader& loader, EventLoop& loop, uint64_t jitter_key, CredentialsProvider::Fetched done)
      : loader_(loader), loop_(loop), jitter_key_(jitter_key), done_(std::move(done)) {}

  /// May be called on any thread.
  void Begin() {
    OnCpu([self = shared_from_this()] {
      absl::StatusOr<AwsSettings> settings = AwsSettings::Load(*self->loader_.environment_);
      absl::StatusOr<std::unique_ptr<CredentialSource>> source =
          settings.ok() ? FindCredentialSource(*settings) : std::move(settings).status();
      self->loop_.Post(
          [self, source = std::move(source)]() mutable { self->Guard([&] { self->OnSource(std::move(source)); }); });
    });
  }

  /// May be called on any thread.
  void Cancel() {
    stop_.request_stop();
    loop_.Post([self = shared_from_this()] {
      self->cancelled_ = true;
      if (self->call_) return self->call_->Cancel();
      // Work on the CPU pool ends by itself.
      if (self->waiting_) self->Guard([&] { self->Finish(absl::CancelledError("the client is closing")); });
    });
  }

 private:
  // Runs a step. One that throws ends the fetch: others wait for what it says.
  template <typename Step>
  void Guard(Step step) {
    const std::shared_ptr<Run> self = shared_from_this();
    try {
      step();
    } catch (const std::exception& error) {
      LogException("s3", error);
      Finish(OutOfMemory());
    }
  }

  void Take(std::optional<RequestLog> log, TextAnswer answer) {
    if (log) {
      if (answer.head.status != 0) log->OnHead(answer.head, answer.begun);
      Log(LogLevel::kDebug, "s3", fmt::format("for credentials: {}", log->Line(answer.result, absl::Now())));
    }
    const std::string problem = answer.problem();
    OnInput({problem.empty() ? absl::OkStatus() : absl::UnavailableError(problem), answer.head.status,
             std::move(answer.result.text), answer.date()});
  }

  template <typename Task>
  void OnCpu(Task task) {
    loader_.runtime_.cpu().Submit([self = shared_from_this(), task = std::move(task)]() mutable {
      try {
        task();
      } catch (const std::exception& error) {
        LogException("s3", error);
        self->loop_.Post([self] { self->Finish(OutOfMemory()); });
      }
    });
  }

  void OnSource(absl::StatusOr<std::unique_ptr<CredentialSource>> source) {
    if (!source.ok()) return Finish(std::move(source).status());
    flow_.emplace(*std::move(source), jitter_key_);
    Do(flow_->Begin(absl::Now()));
  }

  void OnInput(CredentialInput input) { Do(flow_->OnInput(std::move(input), absl::Now())); }

  /// Takes the result of a blocking function as the next input.
  template <typename Function>
  void AskCpu(Function function) {
    OnCpu([self = shared_from_this(), function = std::move(function)] {
      absl::StatusOr<std::string> text = function();
      CredentialInput input{text.status(), 0, text.ok() ? *std::move(text) : std::string(), std::nullopt};
      self->loop_.Post(
          [self, input = std::move(input)]() mutable { self->Guard([&] { self->OnInput(std::move(input)); }); });
    });
  }

  void Do(CredentialFlow::Step step) {
    if (cancelled_) return Finish(absl::CancelledError("the client is closing"));
    std::visit(Overloaded{
                   [this](ReadFileAction& file) {
                     AskCpu([environment = loader_.environment_, path = std::move(file.path)] {
                       return environment->read_file(path);
                     });
                   },
                   [this](WriteFileAction& file) {
                     AskCpu([environment = loader_.environment_, file = std::move(file)] {
                       return KeepFile(*environment, file);
                     });
                   },
                   [this](RunProcessAction& process) {
                     AskCpu([command = std::move(process.command), stop = stop_.get_token()] {
                       return RunCredentialProcess(command, kProcessLimit, stop);
                     });
                   },
                   [this](CallAction& call) { Call(std::move(call)); },
                   [this](WaitAction& wait) { Wait(wait.wait); },
                   [this](CredentialFlow::Result& result) { Finish(std::move(result)); },
               },
               step);
  }

  void Call(CallAction call) {
    std::optional<RequestLog> log;
    if (LogEnabled(LogLevel::kDebug)) {
      log.emplace(HttpRequest{.endpoint = call.endpoint, .head = call.head}, RequestLog::Shows::kServer, 1, false,
                  absl::Now());
    }
    TextRequest request{
        .endpoint = std::move(call.endpoint), .head = std::move(call.head), .body = std::move(call.body)};
    request.limit = absl::ToChronoMilliseconds(call.timeout);
    call_ = BeginText(loader_.http_, loop_, std::move(request),
                      [self = shared_from_this(), log = std::move(log)](TextAnswer answer) mutable {
                        self->call_.reset();
                        if (self->finished_) return;
                        self->Guard([&] { self->Take(std::move(log), std::move(answer)); });
                      });
  }

  void Wait(absl::Duration wait) {
    waiting_ = true;
    timer_.emplace(loop_);
    timer_->Start(absl::ToChronoNanoseconds(wait), [this] {
      Guard([this] {
        waiting_ = false;
        timer_.reset();
        Do(flow_->AfterWait());
      });
    });
  }

  void Finish(CredentialFlow::Result result) {
    const std::shared_ptr<Run> self = shared_from_this();
    if (std::exchange(finished_, true)) return;
    waiting_ = false;
    timer_.reset();
    if (result.ok() && LogEnabled(LogLevel::kInfo))
      Log(LogLevel::kInfo, "s3", fmt::format("AWS credentials come from {}", flow_->Name()));
    done_(std::move(result), absl::Now());
    loader_.OnEnded(self);
  }

  CredentialLoader& loader_;
  EventLoop& loop_;
  const uint64_t jitter_key_;
  CredentialsProvider::Fetched done_;
  std::stop_source stop_;
  std::optional<CredentialFlow> flow_;
  bool cancelled_ = false;
  bool waiting_ = false;
  bool finished_ = false;
  std::shared_ptr<HttpCall> call_;  // in flight
  std::optional<Timer> timer_;      // of a wait
};

CredentialLoader::CredentialLoader(Runtime& runtime, HttpClient& http,
                                   std::shared_ptr<const AwsEnvironment> environment, uint64_t jitter_key)
    : runtime_(runtime), http_(http), environment_(std::move(environment)), jitter_key_(jitter_key) {}

CredentialLoader::~CredentialLoader() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  for (const std::shared_ptr<Run>& run : runs_) run->Cancel();
  idle_.wait(lock, [this] { return runs_.empty(); });
}

void CredentialLoader::Fetch(CredentialsProvider::Fetched done) {
  std::shared_ptr<Run> run;
  {
    std::lock_guard lock(mutex_);
    run = std::make_shared<Run>(*this, runtime_.loops().Next(), HashKey(jitter_key_, {++fetches_}), std::move(done));
    runs_.insert(run);
    if (closing_) run->Cancel();
  }
  run->Begin();
}

void CredentialLoader::OnEnded(const std::shared_ptr<Run>& run) {
  std::lock_guard lock(mutex_);
  runs_.erase(run);
  if (runs_.empty()) idle_.notify_all();
}

}  // namespace millrace
