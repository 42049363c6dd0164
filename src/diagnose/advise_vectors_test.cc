#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "diagnose/advise.h"
#include "diagnose/cost_model.h"
#include "diagnose/data_source.h"
#include "diagnose/service_advice.h"

// This file has the examples of two documents of AWS, each by its name. They are its guide to data sources of training
// jobs (003), and its report on heterogeneous clusters (004). docs/evidence.md lists the numbers in these sources that
// cannot be right.

namespace millrace {
namespace {

/// The guide's data sets: 1 GB and 54 GB, as files of 39 KB and of 110 MB.
struct GuideSet {
  const char* name;
  double bytes;
  uint64_t files;
  double file_bytes() const { return bytes / static_cast<double>(files); }
};
constexpr GuideSet kA{"A", 1e9, 25'641};
constexpr GuideSet kB{"B", 1e9, 9};
constexpr GuideSet kC{"C", 54e9, 1'500'000};
constexpr GuideSet kD{"D", 54e9, 491};
constexpr GuideSet kGuideSets[] = {kA, kB, kC, kD};

CostInputs GuideInputs(const GuideSet& set) {
  const PriceList& prices = BuiltInPrices();
  const MachinePrice machine = *prices.FindMachine("ml.p3.2xlarge");
  CostInputs in;
  in.objects = set.files;
  in.object_bytes = static_cast<uint64_t>(set.bytes);
  in.samples = static_cast<uint64_t>(set.bytes / 39e3);  // large files hold many images
  in.first_byte_seconds = 0.03;
  in.one_bytes_per_second = 90e6;
  in.list_seconds_per_page = kListedPerPage / prices.listed_objects_per_second;
  in.download_bytes_per_second = prices.file_mode_bytes_per_second;
  in.download_files_per_second = prices.file_mode_files_per_second;
  in.stream_bytes_per_second = 1e9;
  in.stream_requests = set.files;
  in.stream_bytes = in.object_bytes;
  in.vcpus = machine.vcpus;
  in.workers = static_cast<uint64_t>(machine.vcpus);
  in.dollars_per_hour = machine.dollars_per_hour;
  in.disk_bytes_per_second = *machine.disk_bytes_per_second;
  return in;
}

double Line(const CostPrediction& prediction, const std::string& name) {
  for (const Derivation& line : prediction.lines) {
    if (line.name == name) return line.value;
  }
  ADD_FAILURE() << prediction.mode << " has no line " << name;
  return 0;
}

DataSource Flow(const GuideSet& set, bool several_epochs) {
  return ChooseSource({.bytes = set.bytes,
                       .files = set.files,
                       .packable = set.file_bytes() > 1e6,  // the guide did not pack its small files
                       .several_epochs = several_epochs})
      .source;
}

TEST(AdviseVectors, V003a) {
  EXPECT_DOUBLE_EQ(DownloadSeconds(50e9, 1, BuiltInPrices().file_mode_bytes_per_second, 150), 250);
}

TEST(AdviseVectors, V003b) {
  EXPECT_NEAR(Line(PredictFastFile(GuideInputs(kC), BuiltInPrices()), "listing"), 273, 1);
  EXPECT_NEAR(Line(PredictFsx(GuideInputs(kC), BuiltInPrices()), "import of names"), 45 * 60, 1e-6);
}

TEST(AdviseVectors, V003c) {
  EXPECT_NEAR(StorageDollarsPerMonth(1e12, BuiltInPrices()), 23, 1e-9);
  EXPECT_NEAR(FsxDollars(1e12, 730 * 3600, BuiltInPrices()), 168, 1e-9);
}

TEST(AdviseVectors, V003d) {
  const MachinePrice machine = *BuiltInPrices().FindMachine("ml.p3.2xlarge");
  EXPECT_NEAR(MachineDollars(machine.dollars_per_hour, 3600), 3.825, 1e-12);
  constexpr double kVolumeGigabyteMonth = 0.14;  // as the guide's sum implies
  EXPECT_NEAR(100 * kVolumeGigabyteMonth / 730, 0.02, 0.001);
}

TEST(AdviseVectors, V003e) {
  EXPECT_EQ(Flow(kA, /*several_epochs=*/false), DataSource::kFsx);
  EXPECT_EQ(Flow(kA, /*several_epochs=*/true), DataSource::kFile);
  EXPECT_NEAR(MachineDollars(3.825, 100), 0.106, 0.0005);
}

TEST(AdviseVectors, V003f) {
  EXPECT_EQ(Flow(kB, /*several_epochs=*/false), DataSource::kFastFile);
}

TEST(AdviseVectors, V003g) {
  EXPECT_EQ(Flow(kC, /*several_epochs=*/true), DataSource::kFsx);
  const CostPrediction file = PredictFile(GuideInputs(kC), BuiltInPrices());
  EXPECT_NEAR(Line(file, "download"), 10'000, 1e-6);
  EXPECT_NEAR(54e9 / Line(file, "download"), 5.4e6, 1);
  EXPECT_NEAR(1'500'000 * BuiltInPrices().get_per_million * 1e-6, 0.60, 1e-12);
  // The guide measured 5,000 s with FSx: less than File mode, and at least what the import of the names takes.
  const CostPrediction fsx = PredictFsx(GuideInputs(kC), BuiltInPrices());
  EXPECT_LT(fsx.startup_seconds + fsx.epoch_seconds, 5000);
  EXPECT_LT(5000, file.startup_seconds);
}

TEST(AdviseVectors, V003h) {
  EXPECT_EQ(Flow(kD, /*several_epochs=*/false), DataSource::kFastFile);
  CostInputs in = GuideInputs(kD);
  EXPECT_NEAR(Line(PredictFile(in, BuiltInPrices()), "download"), 270, 1e-6);
  in.download_bytes_per_second = 1e9;  // then the volume's 250 MB/s are the limit
  EXPECT_NEAR(Line(PredictFile(in, BuiltInPrices()), "download"), 216, 1e-6);
}

// Twelve runs: three sources, two sizes of the data set (Caltech-256's 30,607 images, 50 times over, are the large
// one), two sizes of the files.
TEST(AdviseVectors, V003i) {
  EXPECT_NEAR(30'607 * 50, 1.5e6, 0.05e6);
  const PriceList& prices = BuiltInPrices();
  int runs = 0;
  for (const GuideSet& set : kGuideSets) {
    SCOPED_TRACE(set.name);
    const CostInputs in = GuideInputs(set);
    const CostPrediction file = PredictFile(in, prices);
    const CostPrediction fastfile = PredictFastFile(in, prices);
    const CostPrediction fsx = PredictFsx(in, prices);
    runs += 3;
    // The training begins at once only where nothing is copied, and a listing is short.
    EXPECT_LT(fastfile.startup_seconds, file.startup_seconds);
    const bool many_files = set.files > 10'000;
    if (many_files) {
      // One request for each small file: a mount reads them at a crawl, and FSx fetches nothing one by one.
      EXPECT_GT(fastfile.epoch_seconds, 3 * fsx.epoch_seconds);
      EXPECT_GT(fastfile.epoch_seconds, 10 * set.bytes / in.stream_bytes_per_second);
    } else {
      EXPECT_LT(fastfile.startup_seconds, 5);
      EXPECT_LT(fastfile.epoch_seconds, fsx.epoch_seconds);
    }
    // File mode copies the data first; FSx has the rate of its smallest size.
    EXPECT_NEAR(Line(file, "download"), set.bytes < 2e9 ? (many_files ? 171 : 5) : (many_files ? 10'000 : 270), 1);
    EXPECT_NEAR(Line(fsx, "reading of an epoch"), set.bytes / 240e6, 1e-6);
  }
  EXPECT_EQ(runs, 12);
}

/// A training on a machine of the price list; the report does not say how large its samples are.
ServiceQuestion ReportQuestion(const char* machine, const char* kind, int workers) {
  ServiceQuestion question;
  question.trainer = *BuiltInPrices().FindMachine(machine);
  question.kinds = {*BuiltInPrices().FindMachine(kind)};
  question.workers = workers;
  return question;
}

/// It names vCPUs for each accelerator: so many work for a step of any length.
void NeedVcpusEach(ServiceQuestion* question, double vcpus) {
  question->step_seconds = 0.1;
  question->cpu_seconds_per_sample = vcpus * question->step_seconds / static_cast<double>(question->batch);
}

ServiceAdvice Advised(const ServiceQuestion& question) {
  absl::StatusOr<ServiceAdvice> advice = AdviseService(question);
  EXPECT_TRUE(advice.ok()) << advice.status();
  return advice.ok() ? *std::move(advice) : ServiceAdvice();
}

TEST(AdviseVectors, V004a) {
  ServiceQuestion question = ReportQuestion("ml.p4d.24xlarge", "ml.c5.18xlarge", 1);
  NeedVcpusEach(&question, 20);
  const ServiceAdvice advice = Advised(question);
  EXPECT_EQ(advice.before.bound, StepBound::kCpu);
  ASSERT_TRUE(advice.need.has_value());
  EXPECT_EQ(advice.need->needed, 160);
  EXPECT_EQ(advice.need->missing, 64);
  EXPECT_NEAR(static_cast<double>(advice.need->missing) / advice.need->needed, 0.40, 1e-9);
  EXPECT_NEAR(advice.need->most_accelerator, 0.60, 1e-9);
  EXPECT_NEAR(question.step_seconds / advice.before.seconds, 0.60, 1e-6);
  EXPECT_EQ(advice.vcpus_each, 12);
}

TEST(AdviseVectors, V004b) {
  ServiceQuestion question = ReportQuestion("ml.p4d.24xlarge", "ml.c5.18xlarge", 2);
  NeedVcpusEach(&question, 20);
  const ServiceAdvice advice = Advised(question);
  const ServicePlan& plan = advice.plans.at(0);
  EXPECT_EQ(question.trainer.vcpus + 2 * plan.kind.vcpus, 240);
  EXPECT_EQ(plan.vcpus_each, 30);
  EXPECT_EQ(plan.after.bound, StepBound::kAccelerator);
  EXPECT_NEAR(plan.after.seconds, question.step_seconds, 1e-12);
}

TEST(AdviseVectors, V004c) {
  ServiceQuestion question = ReportQuestion("ml.p4d.24xlarge", "ml.c5.18xlarge", 2);
  question.measured_before = 0.192;
  question.measured_after = 0.086;
  const ServiceAdvice advice = Advised(question);
  const ServicePlan& plan = advice.plans.at(0);
  EXPECT_NEAR(question.trainer.dollars_per_hour + 2 * plan.kind.dollars_per_hour, 45.032, 1e-9);
  EXPECT_NEAR(plan.dollars_before, 0.201, 0.0005);
  EXPECT_NEAR(plan.dollars_after, 0.108, 0.0005);
  EXPECT_NEAR(plan.speedup, 2.23, 0.005);
  EXPECT_NEAR(plan.saving, 0.465, 0.0005);
}

TEST(AdviseVectors, V004d) {
  ServiceQuestion question = ReportQuestion("ml.p3.2xlarge", "ml.c5.9xlarge", 1);
  question.measured_before = 1.193;
  question.measured_after = 0.184;
  const ServiceAdvice advice = Advised(question);
  const ServicePlan& plan = advice.plans.at(0);
  EXPECT_NEAR(question.trainer.dollars_per_hour + plan.kind.dollars_per_hour, 5.661, 1e-9);
  EXPECT_NEAR(plan.dollars_before, 0.127, 0.0005);
  EXPECT_NEAR(plan.dollars_after, 0.029, 0.0005);
  EXPECT_NEAR(plan.speedup, 6.48, 0.005);
  EXPECT_NEAR(plan.saving, 0.772, 0.0005);
}

TEST(AdviseVectors, V004e) {
  // 40 % less time for 30 % less money: the machines together cost a sixth more.
  ServiceQuestion question;
  question.trainer = {.name = "trainer", .vcpus = 8, .gpus = 1, .dollars_per_hour = 6};
  question.kinds = {{.name = "worker", .vcpus = 8, .dollars_per_hour = 1}};
  question.workers = 1;
  question.measured_before = 1;
  question.measured_after = 0.6;
  EXPECT_NEAR(Advised(question).plans.at(0).saving, 0.30, 1e-9);
}

TEST(AdviseVectors, V004f) {
  ServiceQuestion question = ReportQuestion("ml.p4d.24xlarge", "ml.c5.18xlarge", 1);
  NeedVcpusEach(&question, 20);
  EXPECT_EQ(Advised(question).most_cpu_utilization, 9600);
  EXPECT_EQ(Advised(question).most_gpu_utilization, 800);
  question.trainer.vcpus = 1;
  question.trainer.gpus = 1;
  EXPECT_EQ(Advised(question).most_cpu_utilization, 100);
  EXPECT_EQ(Advised(question).most_gpu_utilization, 100);
  question.trainer.vcpus = 4;
  EXPECT_EQ(Advised(question).most_cpu_utilization, 400);
}

}  // namespace
}  // namespace millrace
