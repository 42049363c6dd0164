#include "diagnose/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counted.h"

namespace millrace {

namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kSecondsPerMonth = 730 * kSecondsPerHour;
constexpr double kGigabyte = 1e9;
constexpr uint64_t kPackPartBytes = uint64_t{16} << 20;  // of an upload

double AsDouble(uint64_t value) {
  return static_cast<double>(value);
}

/// "54.0 GB", since prices and published rates are in powers of ten.
std::string Decimal(double bytes) {
  if (bytes >= kGigabyte) return fmt::format("{:.4g} GB", bytes / kGigabyte);
  if (bytes >= 1e6) return fmt::format("{:.4g} MB", bytes / 1e6);
  return fmt::format("{:.4g} KB", bytes / 1e3);
}

double Quotient(double above, double below) {
  return below > 0 ? above / below : 0;
}

/// Returns the times that `amount` takes at these rates, none of which is zero.
Spread Inverse(double amount, const Spread& rate) {
  return {.median = amount / rate.median, .least = amount / rate.most, .most = amount / rate.least};
}

/// Represents a prediction that is being worked out, line by line.
class Worksheet {
 public:
  Worksheet(const CostInputs& in, const PriceList& prices, std::string mode, std::string title)
      : in_(in), prices_(prices) {
    result_.mode = std::move(mode);
    result_.title = std::move(title);
  }

  double Add(std::string name, std::string formula, std::string numbers, double value, std::string unit = "s") {
    result_.lines.push_back({std::move(name), std::move(formula), std::move(numbers), value, std::move(unit)});
    return value;
  }

  double AddListing() {
    const uint64_t pages = ListPages(in_.objects);
    return Add("listing", "pages of up to 1000 objects x seconds for a page",
               fmt::format("{} (of {}) x {:.4g}", pages, Counted(in_.objects, "object"), in_.list_seconds_per_page),
               AsDouble(pages) * in_.list_seconds_per_page);
  }

  /// Returns the CPU's part of an epoch; 0 if it is not known.
  double AddCpu() {
    if (in_.cpu_seconds_per_sample <= 0) return 0;
    return Add("CPU of an epoch", "samples x CPU-seconds of a sample / vCPUs",
               fmt::format("{} x {:.4g} / {}", in_.samples, in_.cpu_seconds_per_sample, in_.vcpus),
               AsDouble(in_.samples) * in_.cpu_seconds_per_sample / in_.vcpus);
  }

  /// Returns the first batch, from when its bytes are asked for.
  double AddFirstBatch(double reading) {
    const double cpu = in_.cpu_seconds_per_sample * AsDouble(std::min(in_.batch, in_.samples)) / in_.vcpus;
    return Add("first batch", "reading + samples of a batch x CPU-seconds of a sample / vCPUs",
               fmt::format("{:.4g} + {} x {:.4g} / {}", reading, std::min(in_.batch, in_.samples),
                           in_.cpu_seconds_per_sample, in_.vcpus),
               reading + cpu);
  }

  void AddStartup(const std::string& formula, const std::string& numbers, double value) {
    result_.startup_seconds = Add("start-up", formula, numbers, value);
  }
  /// Returns the model's part of an epoch; 0 if it is not known.
  double AddModel() {
    const double seconds = ModelSeconds(in_);
    if (seconds > 0 && !std::exchange(has_model_, true)) {
      Add("model of an epoch", "steps of samples / (batch x accelerators) x time of a step",
          fmt::format("{} / ({} x {}) x {:.4g}", in_.samples, in_.batch, in_.accelerators, in_.step_seconds), seconds);
    }
    return seconds;
  }
  double AddLargest(const char* name, double reading, double cpu) {
    const double model = AddModel();
    if (model <= 0) {
      return Add(name, "the larger of reading and CPU", fmt::format("max({:.4g}, {:.4g})", reading, cpu),
                 std::max(reading, cpu));
    }
    return Add(name, "the largest of reading, CPU and model",
               fmt::format("max({:.4g}, {:.4g}, {:.4g})", reading, cpu, model), std::max({reading, cpu, model}));
  }
  void AddEpoch(double reading, double cpu) {
    result_.epoch_seconds = AddLargest("epoch", reading, cpu);
    result_.later_epoch_seconds = result_.epoch_seconds;
  }
  /// Predicts the rest of an epoch from the trial, behind the first batch. Returns false if there was no trial.
  bool AddTriedEpoch(bool later) {
    const Spread& rate = in_.tried_samples_per_second;
    if (rate.least <= 0 || in_.samples <= in_.batch) return false;
    const double all = AsDouble(in_.samples);
    const double rest = all - AsDouble(in_.batch);
    const double model = AddModel();
    const std::string largest = model > 0 ? ", or the model if that is longer" : "";
    const std::string model_text = model > 0 ? fmt::format(", or {:.4g}", model) : "";
    result_.epoch_seconds =
        Add("epoch", "samples behind the first batch / rate of the trials" + largest,
            fmt::format("{} / {:.4g} (of {:.4g} to {:.4g}){}", rest, rate.median, rate.least, rate.most, model_text),
            std::max(rest / rate.median, model));
    const Spread range = Inverse(rest, rate);
    result_.epoch_range = {.median = std::max(range.median, model),
                           .least = std::max(range.least, model),
                           .most = std::max(range.most, model)};
    if (later) {
      result_.later_epoch_seconds =
          Add("each later epoch", "samples / rate of the trials" + largest,
              fmt::format("{} / {:.4g}{}", all, rate.median, model_text), std::max(all / rate.median, model));
    }
    return true;
  }
  void AddLaterEpoch(double reading, double cpu) {
    result_.later_epoch_seconds = AddLargest("each later epoch", reading, cpu);
  }
  /// 0 if the disk is not known.
  double AddDiskReading(const std::string& name) {
    if (in_.disk_bytes_per_second <= 0) return 0;
    const double bytes = AsDouble(in_.object_bytes);
    return Add(name, "bytes / disk", fmt::format("{} / {}/s", Decimal(bytes), Decimal(in_.disk_bytes_per_second)),
               bytes / in_.disk_bytes_per_second);
  }

  void AddRequests(double gets, double lists, const std::string& formula, const std::string& numbers) {
    result_.requests = static_cast<uint64_t>(Add("requests", formula, numbers, gets + lists, ""));
    result_.request_dollars = Add("price of requests", "GETs x price + LISTs x price",
                                  fmt::format("{:.0f} x ${:.4g}/million + {:.0f} x ${:.4g}/million", gets,
                                              prices_.get_per_million, lists, prices_.list_per_million),
                                  1e-6 * (gets * prices_.get_per_million + lists * prices_.list_per_million), "$");
  }

  void AddMachine() {
    if (in_.dollars_per_hour <= 0) return;
    const double seconds = result_.total_seconds(in_.epochs);
    result_.machine_dollars = Add(
        "price of the machine", "(start-up + first epoch + others x epoch) / 3600 x price of an hour",
        fmt::format("({:.4g} + {:.4g} + {} x {:.4g}) / 3600 x ${}", result_.startup_seconds, result_.epoch_seconds,
                    in_.epochs - std::min<uint64_t>(1, in_.epochs), result_.later_epoch_seconds, in_.dollars_per_hour),
        MachineDollars(in_.dollars_per_hour, seconds), "$");
  }

  CostPrediction& result() { return result_; }
  CostPrediction Take() { return std::move(result_); }

 private:
  const CostInputs& in_;
  const PriceList& prices_;
  CostPrediction result_;
  bool has_model_ = false;  // a line
};

/// Returns the time that all files take if each of `readers` reads one after another.
double OneByOneSeconds(const CostInputs& in, double requests) {
  const double each = in.first_byte_seconds * requests + Quotient(AsDouble(in.object_bytes), in.one_bytes_per_second);
  return each / AsDouble(std::max<uint64_t>(1, in.workers));
}

double FastFileRequests(const CostInputs& in) {
  const double mean = Quotient(AsDouble(in.object_bytes), AsDouble(in.objects));
  const auto request_bytes = static_cast<double>(kFastFileRequestBytes);
  const auto each = static_cast<uint64_t>((mean + request_bytes - 1) / request_bytes);
  return AsDouble(in.objects) * AsDouble(std::max<uint64_t>(1, each));
}

}  // namespace

uint64_t ListPages(uint64_t objects) {
  return std::max<uint64_t>(1, objects / kListedPerPage + (objects % kListedPerPage != 0 ? 1 : 0));
}

double ModelSeconds(const CostInputs& in) {
  const uint64_t of_step = in.batch * static_cast<uint64_t>(std::max(1, in.accelerators));
  if (in.step_seconds <= 0 || of_step == 0) return 0;
  return in.step_seconds * AsDouble(in.samples / of_step + (in.samples % of_step != 0 ? 1 : 0));
}

double DownloadSeconds(double bytes, double files, double bytes_per_second, double files_per_second) {
  return std::max(Quotient(bytes, bytes_per_second), Quotient(files, files_per_second));
}

double FsxBytesPerSecond(double bytes, const PriceList& prices) {
  return std::max(prices.fsx_least_gigabytes, bytes / kGigabyte) * prices.fsx_bytes_per_second_per_gigabyte;
}

double EfsBytesPerSecond(double bytes, bool burst, const PriceList& prices) {
  const double each = burst ? prices.efs_burst_bytes_per_second_per_gigabyte : prices.efs_bytes_per_second_per_gigabyte;
  return std::min(prices.efs_most_bytes_per_second, bytes / kGigabyte * each);
}

double EfsDollars(double bytes, double seconds, const PriceList& prices) {
  return bytes / kGigabyte * prices.efs_gigabyte_month * seconds / kSecondsPerMonth;
}

double FsxDollars(double bytes, double seconds, const PriceList& prices) {
  return std::max(prices.fsx_least_gigabytes, bytes / kGigabyte) * prices.fsx_gigabyte_month * seconds /
         kSecondsPerMonth;
}

double StorageDollarsPerMonth(double bytes, const PriceList& prices) {
  return bytes / kGigabyte * prices.gigabyte_month;
}

double MachineDollars(double dollars_per_hour, double seconds) {
  return dollars_per_hour * seconds / kSecondsPerHour;
}

namespace {

/// Adds the time until the first batch, from the trials on this machine.
void AddTriedFileStartup(const CostInputs& in, Worksheet& sheet) {
  const Spread& filling = in.tried_copy_filling_seconds;
  const Spread& rate = in.tried_copy_bytes_per_second;
  const double bytes = AsDouble(in.object_bytes);
  const double listing = sheet.AddListing();
  const double download = sheet.Add("download", "beginning + bytes / rate of the trials",
                                    fmt::format("{:.4g} + {} / {}/s (of {}/s to {}/s)", filling.median, Decimal(bytes),
                                                Decimal(rate.median), Decimal(rate.least), Decimal(rate.most)),
                                    filling.median + bytes / rate.median);
  const double first = sheet.AddFirstBatch(0);
  sheet.AddStartup("listing + download + first batch",
                   fmt::format("{:.4g} + {:.4g} + {:.4g}", listing, download, first), listing + download + first);
  const Spread copying = Inverse(bytes, rate);
  sheet.result().startup_range = {.median = sheet.result().startup_seconds,
                                  .least = listing + filling.least + copying.least + first,
                                  .most = listing + filling.most + copying.most + first};
}

void AddFileStartup(const CostInputs& in, Worksheet& sheet) {
  const double bytes = AsDouble(in.object_bytes);
  const double listing = sheet.AddListing();
  double rate = in.download_bytes_per_second;
  std::string rate_text = Decimal(rate) + "/s";
  if (in.disk_bytes_per_second > 0 && in.disk_bytes_per_second < rate) {
    rate = in.disk_bytes_per_second;
    rate_text = fmt::format("min({}, disk {}/s)", rate_text, Decimal(rate));
  }
  const bool files_count = in.download_files_per_second > 0;
  const double download =
      sheet.Add("download", files_count ? "max(bytes / rate, files / files per second)" : "bytes / rate",
                files_count ? fmt::format("max({} / {}, {} / {:.4g})", Decimal(bytes), rate_text, in.objects,
                                          in.download_files_per_second)
                            : fmt::format("{} / {}", Decimal(bytes), rate_text),
                DownloadSeconds(bytes, AsDouble(in.objects), rate, in.download_files_per_second));
  const double first = sheet.AddFirstBatch(0);
  sheet.AddStartup("listing + download + first batch",
                   fmt::format("{:.4g} + {:.4g} + {:.4g}", listing, download, first), listing + download + first);
}

}  // namespace

CostPrediction PredictFile(const CostInputs& in, const PriceList& prices) {
  Worksheet sheet(in, prices, "file", "File mode");
  in.tried_copy_bytes_per_second.least > 0 ? AddTriedFileStartup(in, sheet) : AddFileStartup(in, sheet);
  const double reading = sheet.AddDiskReading("reading of an epoch");
  sheet.AddEpoch(reading, sheet.AddCpu());
  const uint64_t pages = ListPages(in.objects);
  sheet.AddRequests(AsDouble(in.objects), AsDouble(pages), "one GET of each file, once + pages",
                    fmt::format("{} + {}", in.objects, pages));
  sheet.AddMachine();
  return sheet.Take();
}

namespace {

CostPrediction PredictMount(const CostInputs& in, const PriceList& prices, bool cache) {
  Worksheet sheet(in, prices, cache ? "mount-cache" : "fastfile", cache ? "a mount, with a cache" : "FastFile mode");
  const double listing = sheet.AddListing();
  const double mean_sample = Quotient(AsDouble(in.object_bytes), AsDouble(in.samples));
  const double batch_files = in.objects >= in.samples ? AsDouble(std::min(in.batch, in.samples)) : 1;
  const double first_reading = sheet.Add(
      "reading of the first batch", "files x first byte + bytes / rate of one reader",
      fmt::format("{:.0f} x {:.4g} + {} / {}/s", batch_files, in.first_byte_seconds,
                  Decimal(mean_sample * AsDouble(in.batch)), Decimal(in.one_bytes_per_second)),
      batch_files * in.first_byte_seconds + Quotient(mean_sample * AsDouble(in.batch), in.one_bytes_per_second));
  const double first = sheet.AddFirstBatch(first_reading);
  sheet.AddStartup("listing + first batch", fmt::format("{:.4g} + {:.4g}", listing, first), listing + first);
  const double requests = FastFileRequests(in);
  const double own =
      sheet.Add("reading by workers", "(requests x first byte + bytes / rate of one reader) / workers",
                fmt::format("({:.0f} x {:.4g} + {} / {}/s) / {}", requests, in.first_byte_seconds,
                            Decimal(AsDouble(in.object_bytes)), Decimal(in.one_bytes_per_second), in.workers),
                OneByOneSeconds(in, requests));
  const double most =
      sheet.Add("reading at the most", "bytes / rate of all",
                fmt::format("{} / {}/s", Decimal(AsDouble(in.object_bytes)), Decimal(in.stream_bytes_per_second)),
                Quotient(AsDouble(in.object_bytes), in.stream_bytes_per_second));
  const double cpu = sheet.AddCpu();
  sheet.AddEpoch(std::max(own, most), cpu);
  if (cache) sheet.AddLaterEpoch(sheet.AddDiskReading("reading of a later epoch"), cpu);
  const uint64_t pages = ListPages(in.objects);
  const uint64_t read_epochs = cache ? std::min<uint64_t>(1, in.epochs) : in.epochs;
  sheet.AddRequests(requests * AsDouble(read_epochs), AsDouble(pages),
                    cache ? "epochs that are read x requests of 8 MiB or a file + pages"
                          : "epochs x requests of 8 MiB or a file + pages",
                    fmt::format("{} x {:.0f} + {}", read_epochs, requests, pages));
  sheet.AddMachine();
  return sheet.Take();
}

}  // namespace

CostPrediction PredictFastFile(const CostInputs& in, const PriceList& prices) {
  return PredictMount(in, prices, /*cache=*/false);
}

CostPrediction PredictMountWithCache(const CostInputs& in, const PriceList& prices) {
  return PredictMount(in, prices, /*cache=*/true);
}

CostPrediction PredictEfs(const CostInputs& in, const PriceList& prices) {
  Worksheet sheet(in, prices, "efs", "EFS");
  const double bytes = AsDouble(in.object_bytes);
  const double rate = EfsBytesPerSecond(bytes, /*burst=*/false, prices);
  const double burst = EfsBytesPerSecond(bytes, /*burst=*/true, prices);
  const double copying =
      in.in_efs ? sheet.Add("copying to it", "they lie there already", "0", 0)
                : sheet.Add("copying to it", "bytes / burst rate of its size",
                            fmt::format("{} / {}/s", Decimal(bytes), Decimal(burst)), Quotient(bytes, burst));
  const double first = sheet.AddFirstBatch(in.first_byte_seconds);
  sheet.AddStartup("copying to it + first batch", fmt::format("{:.4g} + {:.4g}", copying, first), copying + first);
  const double reading = sheet.Add("reading of an epoch", "bytes / (size x rate of its size)",
                                   fmt::format("{} / {}/s", Decimal(bytes), Decimal(rate)), Quotient(bytes, rate));
  sheet.AddEpoch(reading, sheet.AddCpu());
  const uint64_t pages = in.in_efs ? 0 : ListPages(in.objects);
  const double copied = in.in_efs ? 0 : AsDouble(in.objects);
  sheet.AddRequests(copied, AsDouble(pages), "one GET of each file that is copied + pages",
                    fmt::format("{:.0f} + {}", copied, pages));
  const double seconds = sheet.result().total_seconds(in.epochs);
  sheet.result().other_dollars =
      sheet.Add("price of the file system", "bytes x price of a month x time / month",
                fmt::format("{} x ${:.4g}/GB x {:.4g} s / 730 h", Decimal(bytes), prices.efs_gigabyte_month, seconds),
                EfsDollars(bytes, seconds, prices), "$");
  sheet.AddMachine();
  return sheet.Take();
}

CostPrediction PredictFsx(const CostInputs& in, const PriceList& prices) {
  Worksheet sheet(in, prices, "fsx", "FSx for Lustre");
  const double bytes = AsDouble(in.object_bytes);
  const double import = sheet.Add("import of names", "objects / objects per hour x 3600",
                                  fmt::format("{} / {:.0f} x 3600", in.objects, prices.fsx_indexed_objects_per_hour),
                                  AsDouble(in.objects) / prices.fsx_indexed_objects_per_hour * kSecondsPerHour);
  const double first = sheet.AddFirstBatch(in.first_byte_seconds);
  sheet.AddStartup("import of names + first batch", fmt::format("{:.4g} + {:.4g}", import, first), import + first);
  const double rate = FsxBytesPerSecond(bytes, prices);
  const double reading = sheet.Add("reading of an epoch", "bytes / (size x rate of its size)",
                                   fmt::format("{} / {}/s", Decimal(bytes), Decimal(rate)), Quotient(bytes, rate));
  sheet.AddEpoch(reading, sheet.AddCpu());
  const uint64_t pages = ListPages(in.objects);
  sheet.AddRequests(AsDouble(in.objects), AsDouble(pages), "one GET of each file, once + pages",
                    fmt::format("{} + {}", in.objects, pages));
  const double seconds = sheet.result().total_seconds(in.epochs);
  sheet.result().other_dollars =
      sheet.Add("price of the file system", "max(least size, bytes) x price of a month x time / month",
                fmt::format("max({:.0f} GB, {}) x ${}/GB x {:.4g} s / 730 h", prices.fsx_least_gigabytes,
                            Decimal(bytes), prices.fsx_gigabyte_month, seconds),
                FsxDollars(bytes, seconds, prices), "$");
  sheet.AddMachine();
  return sheet.Take();
}

namespace {

/// Adds the time until the first batch. If there were trials, they count more, but the arithmetic is still worth
/// seeing.
void AddStreamingStartup(const CostInputs& in, Worksheet& sheet) {
  const bool compared = in.objects <= kComparedObjects;
  const double comparing = compared ? sheet.AddListing() : 0;
  const double index =
      sheet.Add("index", "first byte of HEAD + first byte + bytes / rate of one reader",
                fmt::format("{:.4g} + {:.4g} + {} / {}/s", in.first_byte_seconds, in.first_byte_seconds,
                            Decimal(AsDouble(in.index_bytes)), Decimal(in.one_bytes_per_second)),
                2 * in.first_byte_seconds + Quotient(AsDouble(in.index_bytes), in.one_bytes_per_second));
  const double batch_bytes =
      Quotient(AsDouble(in.object_bytes), AsDouble(in.samples)) * AsDouble(std::min(in.batch, in.samples));
  const double first_reading = sheet.Add("reading of the first batch", "first byte + bytes / rate of many requests",
                                         fmt::format("{:.4g} + {} / {}/s", in.first_byte_seconds, Decimal(batch_bytes),
                                                     Decimal(in.stream_bytes_per_second)),
                                         in.first_byte_seconds + Quotient(batch_bytes, in.stream_bytes_per_second));
  const double first = sheet.AddFirstBatch(first_reading);
  std::string formula = compared ? "listing + index + first batch" : "index + first batch";
  std::string numbers = compared ? fmt::format("{:.4g} + {:.4g} + {:.4g}", comparing, index, first)
                                 : fmt::format("{:.4g} + {:.4g}", index, first);
  const Spread& tried = in.tried_startup_seconds;
  if (tried.median <= 0 && in.tried_beyond_seconds > 0) {
    formula += " + what the trials here took beyond this";
    numbers += fmt::format(" + {:.4g}", in.tried_beyond_seconds);
    return sheet.AddStartup(formula, numbers, comparing + index + first + in.tried_beyond_seconds);
  }
  if (tried.median <= 0) return sheet.AddStartup(formula, numbers, comparing + index + first);
  sheet.Add("start-up by arithmetic", formula, numbers, comparing + index + first);
  sheet.AddStartup("the median of the trials",
                   fmt::format("{:.4g} (of {:.4g} to {:.4g})", tried.median, tried.least, tried.most), tried.median);
  sheet.result().startup_range = tried;
}

CostPrediction PredictMillrace(const CostInputs& in, const PriceList& prices, bool cache) {
  Worksheet sheet(in, prices, cache ? "streaming-cache" : "streaming",
                  cache ? "streaming, with a cache" : "streaming with Millrace");
  AddStreamingStartup(in, sheet);
  const double reading =
      sheet.Add("reading of an epoch", "bytes of the plan / rate of many requests",
                fmt::format("{} / {}/s", Decimal(AsDouble(in.stream_bytes)), Decimal(in.stream_bytes_per_second)),
                Quotient(AsDouble(in.stream_bytes), in.stream_bytes_per_second));
  const double cpu = sheet.AddCpu();
  if (!sheet.AddTriedEpoch(/*later=*/!cache)) sheet.AddEpoch(reading, cpu);
  if (cache) sheet.AddLaterEpoch(sheet.AddDiskReading("reading of a later epoch"), cpu);
  const double pages = in.objects <= kComparedObjects ? AsDouble(ListPages(in.objects)) : 0;
  const uint64_t read_epochs = cache ? std::min<uint64_t>(1, in.epochs) : in.epochs;
  sheet.AddRequests(AsDouble(in.stream_requests) * AsDouble(read_epochs) + 1, pages,
                    "epochs that are read x requests of the plan + 1 for the index + pages",
                    fmt::format("{} x {} + 1 + {:.0f}", read_epochs, in.stream_requests, pages));
  sheet.AddMachine();
  return sheet.Take();
}

}  // namespace

CostPrediction PredictStreaming(const CostInputs& in, const PriceList& prices) {
  return PredictMillrace(in, prices, /*cache=*/false);
}

CostPrediction PredictStreamingPacked(const CostInputs& in, const PriceList& prices) {
  const auto parts = [](uint64_t bytes, uint64_t part) { return std::max<uint64_t>(1, (bytes + part - 1) / part); };
  CostInputs packed = in;
  packed.objects = parts(in.object_bytes, kPackedShardBytes);
  packed.stream_requests = parts(in.object_bytes, kPackedExtentBytes);
  packed.stream_bytes = in.object_bytes;
  packed.tried_startup_seconds = packed.tried_samples_per_second = {};  // the data were tried as they are
  CostPrediction result = PredictMillrace(packed, prices, /*cache=*/false);
  result.mode = "streaming-packed";
  result.title = "streaming, packed before";
  const uint64_t writes = parts(in.object_bytes, kPackPartBytes);
  const double dollars =
      1e-6 * (AsDouble(in.objects) * prices.get_per_million + AsDouble(writes) * prices.put_per_million);
  result.lines.push_back({"price of packing, once", "objects x GET + parts of 16 MiB x PUT",
                          fmt::format("{} x ${:.4g}/million + {} x ${:.4g}/million", in.objects, prices.get_per_million,
                                      writes, prices.put_per_million),
                          dollars, "$"});
  const double seconds =
      Quotient(AsDouble(in.object_bytes), std::min(in.stream_bytes_per_second, in.download_bytes_per_second));
  result.lines.push_back({"time of packing, once", "bytes / the smaller rate of reading",
                          fmt::format("{} / {}/s", Decimal(AsDouble(in.object_bytes)),
                                      Decimal(std::min(in.stream_bytes_per_second, in.download_bytes_per_second))),
                          seconds, "s"});
  result.other_dollars += dollars;
  return result;
}

CostPrediction PredictStreamingWithCache(const CostInputs& in, const PriceList& prices) {
  return PredictMillrace(in, prices, /*cache=*/true);
}

}  // namespace millrace
