#include "devstore/devstore.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "base/file_text.h"
#include "base/process.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/metrics_option.h"
#include "cli/usage.h"

namespace millrace::cli {

namespace {

constexpr const char* kDevstoreFooter =
    R"(If ROOT is a folder, its sub-folders are buckets and the files below them are objects; devstore keeps their other
attributes in ROOT/.devstore. It does not follow symbolic links that lead out of ROOT. "mem:" keeps everything in memory.
The server prints a line of shell, which points Millrace, Python and the AWS tools at it:
  export AWS_ENDPOINT_URL=http://127.0.0.1:9000 AWS_ACCESS_KEY_ID=millrace AWS_SECRET_ACCESS_KEY=millrace-secret ...

--fault 'METHOD KEYGLOB ACTION [p=0.3] [after=N] [count=N] [from=S] [until=S]', repeatable: the first rule that matches
a request and wins its draw acts on it. METHOD may be *. KEYGLOB matches bucket/key (a listing: bucket/ + prefix); its * crosses '/', a
space is %20.
  status=503      an error, nothing is done        cut=BYTES        ends the connection (FIN) in the body or behind it
  error=400:CODE  one of that code; 3xx tell       cut=head[:BYTES] before the head, or after so many bytes of it
                  this server's region             reset=...        the same by RST
  retry-after=S   503 with that header             close            ends it after the answer, and says so
  limit=N         503 beyond N requests a second   chunked[=BYTES]  no Content-Length; cut there without the end
  error-in-200    <Error> under 200, nothing done  flip=BYTE        one bit of the body is wrong
  delay-ms=N      before the answer                wrong-range      bytes and Content-Range of another range
  rate=N          bytes a second                   short-range      the first half of what was asked for
  stall=BYTES:MS  a pause within the body          whole            status 200 and the whole object
  new-etag        the object's ETag changes for good
  skip-key        a listing that starts after a text that is no key skips the next one
Draws and delays are hashes of (seed, method, key, range, attempt): the same run has the same faults. The option p is the
probability of each draw. The options after and count are numbers of matches and of firings of the rule. The options from
and until are seconds since its first match.

A bucket called NAME--ZONE--x-s3 is a directory bucket. Requests are signed by sessions (CreateSession) of five minutes, and
ETags are no MD5s. Listings take folders as prefixes, no other delimiter than '/' and no start.

With --ec2 this server is also the endpoint of EC2 (AWS_ENDPOINT_URL_EC2), strict about states, zones, ClientToken and
signatures. At /imds/INSTANCE it is the metadata service of each instance that RunInstances made
(AWS_EC2_METADATA_SERVICE_ENDPOINT). POST /imds/INSTANCE/interrupt?seconds=120 announces a spot interruption. The volumes of an
instance are below DIR/instances/INSTANCE (`millrace volume --dev`). Faults see calls as 'POST ec2/ACTION'.

Examples:
  millrace devstore data --port 9000
  millrace devstore mem: --bucket demo --first-byte-ms 30 --first-byte-tail-ms 300 --tail-fraction 0.01
  millrace devstore data --fault 'GET demo/* status=503 p=0.3 until=30' --fault 'GET demo/*.tar reset=100000 count=2'
  millrace devstore mem: --ec2 cloud --fault 'POST ec2/CreateVolume error=503:RequestLimitExceeded count=2'
  millrace devstore data --tls   # then: export AWS_CA_BUNDLE=<the CA file that it prints>)";

struct DevstoreFlags {
  DevstoreOptions options;
  std::optional<std::string> secret_key;
  std::optional<std::string> secret_key_file;
  std::string bandwidth;
  bool access_log = false;
  std::string metrics_port;
};

constexpr const char* kSecretVariable = "MILLRACE_DEVSTORE_SECRET_KEY";

/// Returns the first line of a file.
absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  constexpr size_t kMaxSecret = 1024;
  absl::StatusOr<std::string> text = ReadFileText(path, kMaxSecret + 1);
  if (!text.ok()) {
    return absl::NotFoundError(
        fmt::format("--secret-key-file: {} cannot be read; name a file that holds the secret", path));
  }
  text->resize(std::min(text->size(), text->find('\n')));
  if (text->ends_with('\r')) text->pop_back();
  if (text->empty() || text->size() > kMaxSecret) {
    return absl::InvalidArgumentError(fmt::format(
        "--secret-key-file: the first line of {} must be the secret, of 1 to {} characters", path, kMaxSecret));
  }
  return text;
}

/// Sets the secret from where the user put it, if anywhere.
absl::Status TakeSecret(const DevstoreFlags& flags, DevstoreOptions* options) {
  if (flags.secret_key && flags.secret_key_file) {
    return UsageError("--secret-key and --secret-key-file exclude each other; leave one out");
  }
  if (flags.secret_key) {
    options->secret_key = *flags.secret_key;
  } else if (flags.secret_key_file) {
    ASSIGN_OR_RETURN(options->secret_key, ReadSecret(*flags.secret_key_file));
  } else if (const std::string variable = EnvironmentValue(kSecretVariable); !variable.empty()) {
    options->secret_key = variable;
  }
  return absl::OkStatus();
}

/// A server that anybody can reach, and that anybody may write to.
void WarnIfOpen(const DevstoreOptions& options) {
  const std::string& host = options.host;
  if (host == "localhost" || host == "::1" || host.starts_with("127.")) return;
  const DevstoreOptions defaults;
  const bool known_keys = options.access_key == defaults.access_key && options.secret_key == defaults.secret_key;
  if (!options.anonymous && !known_keys) return;
  PrintError(
      "millrace devstore: warning: everybody who reaches {} can read, replace and delete all of {}, since {}; listen "
      "on 127.0.0.1, or {}set --access-key and --secret-key-file\n",
      Printable(host), Printable(options.root),
      options.anonymous ? "--anonymous turns the check of signatures off" : "the keys are those that everybody knows",
      options.anonymous ? "leave --anonymous out and " : "");
}

void CollectDevstore(const Devstore& devstore, const std::vector<std::string>& faults, MetricsText* text) {
  for (const auto& [answer, count] : devstore.counters()) {
    text->Counter("millrace_devstore_answers_total", "Answers by method and HTTP status; 0: cut before the status.",
                  {{"method", answer.first}, {"status", std::to_string(answer.second)}}, static_cast<double>(count));
  }
  const std::vector<uint64_t> fired = devstore.fault_firings();
  for (size_t i = 0; i < fired.size() && i < faults.size(); ++i) {
    text->Counter("millrace_devstore_faults_total", "How often each fault was injected.", {{"fault", faults[i]}},
                  static_cast<double>(fired[i]));
  }
}

// Returns a line of shell that points clients at the server: Millrace, Python and the AWS tools. A secret that the user
// has set is not printed.
std::string ClientSettings(const DevstoreOptions& options, const Devstore& devstore) {
  std::string line = "export AWS_ENDPOINT_URL=" + ShellWord(devstore.url());
  const bool known_secret = options.secret_key == DevstoreOptions().secret_key;
  if (!options.anonymous) {
    line += " AWS_ACCESS_KEY_ID=" + ShellWord(options.access_key);
    if (known_secret) line += " AWS_SECRET_ACCESS_KEY=" + ShellWord(options.secret_key);
  }
  // Millrace prefers the first one, and boto3 reads only the second one.
  for (const char* const name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    line += fmt::format(" {}={}", name, ShellWord(options.region));
  if (!devstore.ca_file().empty()) line += " AWS_CA_BUNDLE=" + ShellWord(devstore.ca_file());
  if (!options.anonymous && !known_secret) line += "  # AWS_SECRET_ACCESS_KEY is the secret that you gave";
  return line;
}

absl::Status Serve(const DevstoreFlags& flags) {
  DevstoreOptions options = flags.options;
  if (!flags.bandwidth.empty()) {
    ASSIGN_OR_RETURN(options.bandwidth, TakeSizeOrZero("--bandwidth", flags.bandwidth));
  }
  if (flags.access_log) {
    options.access_log = [](std::string_view line) { WriteStdout(fmt::format("{}\n", line)).IgnoreError(); };
  }
  RETURN_IF_ERROR(TakeSecret(flags, &options));
  ASSIGN_OR_RETURN(const std::optional<MetricsAddress> metrics_address, TakeMetricsPort(flags.metrics_port));
  WarnIfOpen(options);
  const StopSignals signals;
  absl::StatusOr<std::unique_ptr<Devstore>> started = Devstore::Start(options);
  if (absl::IsInvalidArgument(started.status())) return AsUsage(started.status());  // there are only options
  ASSIGN_OR_RETURN(const std::unique_ptr<Devstore> devstore, std::move(started));
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics, ServeMetrics(metrics_address, [&](MetricsText* text) {
                     CollectProcess(text);
                     CollectDevstore(*devstore, flags.options.faults, text);
                   }));
  if (!devstore->ca_file().empty()) RETURN_IF_ERROR(WriteStdout(fmt::format("CA file: {}\n", devstore->ca_file())));
  // One write: a program that closes the pipe after the first line does not end the server. Each further line of an
  // access log is a request.
  const std::string settings = flags.access_log ? "" : ClientSettings(options, *devstore) + "\n";
  RETURN_IF_ERROR(WriteStdout(fmt::format("listening on {}\n{}", devstore->url(), settings)));
  signals.Wait();
  return absl::OkStatus();
}

void AddOptions(Command command, DevstoreFlags* flags) {
  DevstoreOptions& options = flags->options;
  command.Add("root", &options.root, "Folder to serve, or mem:").Required();
  command.AddShown("--host", &options.host, "Address to listen on");
  command.AddShown("--port", &options.port, "0: any free one").Number(0, 65535);
  command.AddShown("--threads", &options.threads, "Event loops; 0: as many as CPUs, at most 2")
      .Number(0, DevstoreOptions::kMaxThreads);
  command.AddFlag("--tls", &options.tls, "Serve https with a certificate made now; its CA file is printed");
  command.AddShown("--access-key", &options.access_key, "The access key id that clients must use");
  command.Add("--secret-key", &flags->secret_key,
              "Its secret, which other users of this machine can see on the command line; else "
              "MILLRACE_DEVSTORE_SECRET_KEY is taken [millrace-secret]");
  command.Add("--secret-key-file FILE", &flags->secret_key_file, "Its secret is the first line of this file");
  command.AddFlag("--anonymous", &options.anonymous, "Do not check signatures");
  command.AddFlag("--opaque-etags", &options.opaque_etags,
                  "ETags of uploaded objects are not MD5s, as of objects that S3 encrypts by KMS");
  command.AddShown("--region", &options.region, "The region that requests must be signed for");
  command.Add("--bucket", &options.buckets, "Make this bucket at the start; repeatable");
  command.AddShown("--first-byte-ms", &options.latency.first_byte_ms,
                   "Median time to the first byte; it varies log-normally");
  command.AddShown("--first-byte-sigma", &options.latency.first_byte_sigma,
                   "Standard deviation of the logarithm of that time");
  command.Add("--first-byte-tail-ms", &options.latency.tail_ms, "Time to the first byte of slow requests");
  command.Add("--tail-fraction", &options.latency.tail_fraction, "Share of slow requests, 0 to 1");
  command.Add("--bandwidth", &flags->bandwidth, "Bytes a second of each connection, e.g. 50MiB");
  command
      .Add("--rate-per-prefix", &options.rate_per_prefix,
           "Requests a second for each prefix (bucket and key up to its last '/'), 503 SlowDown beyond")
      .Number(0);
  command.Add("--fault", &options.faults, "Inject a fault; repeatable, see below");
  command.AddShown("--seed", &options.seed, "Seed of delays and faults").Number(0);
  command.AddShown("--clock-offset", &options.clock_offset_s, "Seconds by which its clock is ahead, or behind (-)");
  command.Add("--ec2 DIR", &options.ec2_folder,
              "Also be EC2, for volumes, snapshots and instances, which are folders in DIR; see below");
  command
      .AddShown("--ec2-looks", &options.ec2_looks,
                "How many descriptions of EC2 still show a state that passes (pending, attaching)")
      .Number(0, 1000);
  AddMetricsPort(command, &flags->metrics_port);
  command.AddFlag("--access-log", &flags->access_log, "Print a line for each request, and no settings of clients");
  command.Footer(kDevstoreFooter);
}

}  // namespace

void AddDevstore(Command app) {
  const Command command =
      app.AddCommand("devstore", "Serve a folder or memory as S3, with latency and faults, for tests");
  auto flags = std::make_shared<DevstoreFlags>();
  AddOptions(command, flags.get());
  command.Run([flags] { return ExitStatus("devstore", Serve(*flags)); });
}

}  // namespace millrace::cli
