#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/usage.h"

namespace millrace::cli {
namespace {

constexpr const char* kFooter =
    R"('millrace COMMAND --help' shows the options of a command, with their defaults (=X, or [X] at
the end), and examples.

  URIs         s3://bucket/prefix, file:///path or a plain path, mem://name
  S3           AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, or a
               profile (AWS_PROFILE): docs/s3.md
  Exit status  0 done, 1 failed, 2 wrong usage)";

// In the order of a first session: make data, look at it, prepare it, read it.
void AddCommands(CLI::App& app, Action* run) {
  AddDevstore(app, run);
  AddSynth(app, run);
  AddLs(app, run);
  AddCat(app, run);
  AddCp(app, run);
  AddSync(app, run);
  AddRm(app, run);
  AddPack(app, run);
  AddIndex(app, run);
  AddInspect(app, run);
  AddFeed(app, run);
  AddDoctor(app, run);
}

// Connections and files are limited to 1,024 for programs that use select(), which none here does: those that may have
// more say so.
void AllowManyFiles() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Main(int argc, char** argv) {
  // A reader that goes away (`millrace cat x | head`) is an error of write(), so that destructors still run.
  // So does a limit on the size of files.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  AllowManyFiles();
  CLI::App app("Streams machine-learning samples from object storage to the training loop.", "millrace");
  app.set_version_flag("--version", "millrace " MILLRACE_VERSION);
  app.require_subcommand(1);
  app.formatter(HelpFormatter());  // before the commands, which take it over
  app.footer(kFooter);
  Action run;
  AddCommands(app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      app.exit(error, text, text);
      const absl::Status status = WriteStdout(text.str());
      return status.ok() ? 0 : Fail("help", status);
    }
    fmt::print(stderr, "{}", ExplainUsage(app, error, argc > 1 ? argv[1] : ""));
    return 2;
  }
  return run();
}

}  // namespace
}  // namespace millrace::cli

int main(int argc, char** argv) {
  try {
    const int code = millrace::cli::Main(argc, argv);
    if (code == millrace::cli::kOutputClosed) {
      // As programs end that know nothing of all this; destructors have run.
      std::signal(SIGPIPE, SIG_DFL);
      std::raise(SIGPIPE);
    }
    return code;
  } catch (const std::exception& error) {  // memory is exhausted, or a library broke its word
    fmt::print(stderr, "millrace: {}\n", error.what());
    return 1;
  }
}
