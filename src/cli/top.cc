#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/long_task.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/top_view.h"
#include "cli/usage.h"
#include "net/metrics_scraper.h"

namespace millrace::cli {

namespace {

using TopClock = std::chrono::steady_clock;

struct TopFlags {
  std::vector<std::string> addresses;
  std::string interval = "1s";
  bool once = false;
  bool json = false;
};

/// Asks all processes again and again, and shows what they did since the last time.
class Top {
 public:
  Top(const TopFlags& flags, std::vector<MetricsAddress> addresses, std::chrono::nanoseconds interval)
      : flags_(flags), addresses_(std::move(addresses)), interval_(interval) {}

  absl::Status Run() {
    const InterruptStop interrupt;
    const bool redraws = !flags_.json && !flags_.once && isatty(STDOUT_FILENO) == 1;
    const bool once = flags_.once || (!redraws && !flags_.json);
    std::vector<TopPage> before = Read();
    while (SleepUnlessStopped(interval_, interrupt.token())) {
      std::vector<TopPage> now = Read();
      const absl::Status shown = Show(before, now, redraws, once);
      if (!shown.ok() || once) return shown;
      before = std::move(now);
    }
    return absl::OkStatus();
  }

 private:
  std::vector<TopPage> Read() {
    std::vector<TopPage> pages;
    for (auto& samples : scraper_.Read(addresses_)) {
      const std::chrono::duration<double> at = TopClock::now().time_since_epoch();
      pages.push_back({.at = at.count(), .samples = std::move(samples)});
    }
    return pages;
  }

  // Returns Unavailable if no process answers, so that a script that looks once sees it.
  absl::Status Show(const std::vector<TopPage>& before, const std::vector<TopPage>& now, bool redraws,
                    bool once) const {
    std::string text = redraws ? "\x1b[H\x1b[2J" : "";
    absl::Status all_fail;
    bool any = false;
    for (size_t i = 0; i < now.size(); ++i) {
      const TopProcess process(flags_.addresses[i], before[i], now[i]);
      any = any || process.status().ok();
      if (!process.status().ok()) all_fail = process.status();
      text += flags_.json ? process.JsonText() : process.Text();
    }
    if (!any && once) return all_fail;
    return WriteStdout(text);
  }

  const TopFlags& flags_;
  const std::vector<MetricsAddress> addresses_;
  const std::chrono::nanoseconds interval_;
  Scraper scraper_;
};

absl::Status RunTop(const TopFlags& flags) {
  std::vector<MetricsAddress> addresses;
  for (const std::string& text : flags.addresses) {
    ASSIGN_OR_RETURN(addresses.emplace_back(), AsUsage(ParseMetricsAddress(text)));
  }
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds interval, TakeDuration("--interval", flags.interval));
  if (interval < std::chrono::milliseconds(100)) {
    return UsageError("--interval must be 100ms at least");
  }
  CatchInterrupts();
  return Top(flags, std::move(addresses), interval).Run();
}

}  // namespace

void AddTop(Command app) {
  const Command top = app.AddCommand("top", "Show live what processes of Millrace do and what they wait for");
  auto flags = std::make_shared<TopFlags>();
  top.Add("address", &flags->addresses, "Where their metrics are: PORT of this machine, or HOST:PORT").Required();
  top.AddShown("--interval TIME", &flags->interval, "Time between two looks");
  top.AddFlag("--once", &flags->once, "Look twice, print the rates between, and end; the default without a terminal");
  top.AddFlag("--json", &flags->json, "One JSON object a line for each process, at each look");
  top.Footer(
      "The processes serve metrics if they are started with --metrics-port, or call millrace.configure(metrics_port=). "
      "`waits` is the share of the time in which the program waited for a batch; behind it stands what the earliest "
      "sample of that batch was waiting for. Prometheus reads the same pages: docs/metrics.md\n\n"
      "Examples:\n"
      "  millrace feed s3://bucket/train --metrics-port 9400 & millrace top 9400\n"
      "  millrace top 9400 9401 10.0.0.7:9400\n"
      "  millrace top 9400 --once --json | jq .loaders");
  top.Run([flags] { return ExitStatus("top", RunTop(*flags)); });
}

}  // namespace millrace::cli
