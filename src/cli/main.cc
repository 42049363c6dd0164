#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "base/log_setting.h"
#include "base/process.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/console.h"

namespace millrace::cli {
namespace {

constexpr const char* kFooter =
    R"('millrace COMMAND --help' shows the options of a command, with their defaults (=X, or [X] at
the end), and examples.

  URIs         s3://bucket/prefix, file:///path or a plain path, mem://name
  S3           AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, or a
               profile (AWS_PROFILE); or --endpoint-url, --region, --profile: docs/s3.md
  Log          --log-level, or MILLRACE_LOG=debug|info|warning|error|off, to stderr; debug logs
               each request to S3
  Exit status  0 done, 1 failed, 2 wrong usage, 130 interrupted by Ctrl-C)";

// Groups follow the purposes of people. Each group is in the order of a first session.
void AddCommands(const Command& app) {
  const Command store = app.Under("Store commands");
  AddLs(store);
  AddCat(store);
  AddCp(store);
  AddSync(store);
  AddRm(store);
  AddUploads(store);
  AddMount(store);
  const Command data = app.Under("Data commands");
  AddPack(data);
  AddIndex(data);
  AddInspect(data);
  const Command training = app.Under("Training commands");
  AddFeed(training);
  AddWorker(training);
  AddRun(training);
  AddCache(training);
  AddCheckpoint(training);
  AddCompileCache(training);
  AddVolume(training);
  const Command measuring = app.Under("Measuring commands");
  AddDoctor(measuring);
  AddTop(measuring);
  AddBench(measuring);
  AddAdvise(measuring);
  const Command tests = app.Under("Test commands");
  AddDevstore(tests);
  AddSynth(tests);
  const Command help = app.Under("Help commands");
  AddHelp(help);
  AddEnv(help);
}

// People write them before the command's name and behind it.
void AddOptionsToAll(const Command& root, OutputOptions* output, S3Options* s3) {
  AddOutputOptions(root, output);
  AddS3Options(root, s3);
  for (const Command& command : root.Commands()) {
    // Short options may be meant for the program.
    AddOutputOptions(command, output, command.name() == "run" || command.name() == "compile-cache");
    const bool local = command.name() == "devstore" || command.name() == "compare" || command.name() == "top";
    if (!local) AddS3Options(command, s3);
  }
}

// A program that is started without standard streams would give their numbers to the next files that it opens, and read
// or write these. In their places comes what answers as a closed stream does; messages go nowhere.
void FillStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    (void)!open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY);
  }
}

int Main(int argc, char** argv) {
  FillStandardStreams();
  // A reader that goes away (`millrace cat x | head`) is an error of write(), so that destructors still run.
  // So does a limit on the size of files.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  AllowManyFiles();
  CommandLine line("millrace", "Streams machine-learning samples from object storage to the training loop.",
                   MILLRACE_VERSION);
  line.root().Footer(kFooter);
  AddCommands(line.root());
  OutputOptions output;
  S3Options s3;
  AddOptionsToAll(line.root(), &output, &s3);
  line.BeforeRun([&output, &s3] {
    absl::Status usage = ApplyOutputOptions(output);
    usage.Update(AsUsage(CheckLogSetting()));
    usage.Update(ApplyS3Options(s3));
    return ExitStatus("", usage);
  });
  return line.Run(argc, argv);
}

}  // namespace
}  // namespace millrace::cli

int main(int argc, char** argv) {
  try {
    const int code = millrace::cli::Main(argc, argv);
    if (code == millrace::cli::kOutputClosed) {
      // The process ends as a program without a handler does; destructors have run.
      std::signal(SIGPIPE, SIG_DFL);
      std::raise(SIGPIPE);
    }
    return code;
  } catch (const std::exception& error) {  // memory is exhausted, or a library broke its word
    millrace::cli::PrintError("millrace: {}\n", millrace::cli::Printable(error.what()));
    return 1;
  }
}
