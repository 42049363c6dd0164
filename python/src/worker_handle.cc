#include "worker_handle.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <set>
#include <utility>

#include "arguments.h"
#include "batch_dict.h"
#include "bindings.h"
#include "errors.h"
#include "gil_release.h"
#include "loader_options.h"
#include "service/row_functions.h"
#include "service/worker_calls.h"
#include "service/worker_tls.h"
#include "service/worker_token.h"

namespace millrace::python {

namespace {

// Holds workers of this process that are open. Guarded by the GIL; leaked, like all that the interpreter's end may
// touch.
std::set<WorkerHandle*>& OpenWorkers() {
  static auto* const workers = new std::set<WorkerHandle*>();
  return *workers;
}

// Python's side of RowFunctions gets this tuple: name, URI, whether tensors are wanted, most bytes, and the arguments
// of the random numbers.
nb::tuple ToTuple(const RowFunction& function) {
  return nb::make_tuple(
      ToPyText(function.name), ToPyText(function.uri), function.wants_tensors, function.most_bytes,
      nb::make_tuple(function.seed, function.rank, function.world, function.is_mix, function.streams, function.stream));
}

/// Runs functions of Python, which need the GIL: one at a time.
class PythonFunctions final : public RowFunctions {
 public:
  PythonFunctions(std::shared_ptr<Process> process, nb::object check, nb::object apply)
      : process_(std::move(process)), check_(std::move(check)), apply_(std::move(apply)), converter_(HandOver{}) {}
  // A thread without the GIL may let go last.
  // NOLINTNEXTLINE(bugprone-exception-escape): it ends the process, which cannot work without the GIL
  ~PythonFunctions() override {
    const nb::gil_scoped_acquire acquire;
    check_ = apply_ = nb::object();
    converter_.reset();
  }

  absl::Status Check(const RowFunction& function) override {
    const nb::gil_scoped_acquire acquire;
    return Guarded([&] { check_(ToTuple(function)); });
  }

  absl::StatusOr<std::vector<std::string>> Apply(const RowFunction& function, const BatchShape& shape,
                                                 uint64_t consumed, Batch batch) override {
    const nb::gil_scoped_acquire acquire;
    std::vector<std::string> rows;
    const uint64_t epoch = batch.epoch;
    RETURN_IF_ERROR(Guarded([&] {
      const nb::dict columns = converter_->ToDict(shape, process_, std::move(batch));
      const nb::object results = apply_(ToTuple(function), columns, epoch, consumed);
      for (const nb::handle result : results) {
        const auto bytes = nb::cast<nb::bytes>(result);
        rows.emplace_back(bytes.c_str(), bytes.size());
      }
    }));
    return rows;
  }

 private:
  // An exception that Python raises here is not one of the function's own exceptions, which are results.
  template <typename Work>
  absl::Status Guarded(Work work) {
    try {
      work();
      return absl::OkStatus();
    } catch (nb::python_error& error) {
      return absl::FailedPreconditionError(MessageOf(error));
    } catch (const std::exception& error) {
      return absl::FailedPreconditionError(error.what());
    }
  }

  const std::shared_ptr<Process> process_;
  nb::object check_;
  nb::object apply_;
  std::optional<BatchConverter> converter_;
};

}  // namespace

WorkerHandle::WorkerHandle(const std::string& listen, std::vector<std::string> allow, const std::string& token_file,
                           const std::string& tls, const std::string& cache, const std::string& cache_size,
                           const std::string& cache_tenant, nb::object check, nb::object apply)
    : process_(CurrentProcess()) {
  const HttpEndpoint at = ValueOrThrow(ParseWorkerAddress(listen));
  WorkerOptions options{.host = at.host, .port = at.port, .allow = std::move(allow)};
  options.token = ValueOrThrow(ReadWorkerToken(token_file));
  if (!tls.empty()) options.tls = ValueOrThrow(ReadWorkerTls(tls));
  options.functions = std::make_shared<PythonFunctions>(process_, std::move(check), std::move(apply));
  const RangeCacheOptions place = ToCacheOptions(cache, cache_size, cache_tenant);
  absl::StatusOr<std::unique_ptr<RangeCache>> kept = nullptr;
  if (!cache.empty()) {
    const GilRelease release;
    kept = RangeCache::Open(place, process_->runtime.memory());
  }
  options.cache = ValueOrThrow(std::move(kept));
  const auto start = [&] { return Worker::Start(process_->runtime, process_->stores, options); };
  worker_.reset(ValueOrThrow(WithoutGil(start)).release());
  const bool is_v6 = at.host.find(':') != std::string::npos;
  address_ = fmt::format("{}{}{}:{}", is_v6 ? "[" : "", at.host, is_v6 ? "]" : "", worker_->port());
  OpenWorkers().insert(this);
}

WorkerHandle::~WorkerHandle() {
  OpenWorkers().erase(this);
  if (maker_ == getpid()) Close();
}

void WorkerHandle::Close() {
  CheckOwnProcess(maker_, "Worker");
  OpenWorkers().erase(this);
  ProcessLocal<Worker> worker = std::move(worker_);
  const GilRelease release;  // functions that run need it to end
  worker.reset();
}

void WorkerHandle::CloseAll() {
  const std::set<WorkerHandle*> workers = OpenWorkers();
  for (WorkerHandle* worker : workers) {
    // Closing releases the GIL, so another thread may have destroyed this one meanwhile.
    if (OpenWorkers().contains(worker) && worker->maker_ == getpid()) worker->Close();
  }
}

void BindWorker(nb::module_& module) {
  nb::class_<WorkerHandle>(module, "Worker")
      .def(nb::init<const std::string&, std::vector<std::string>, const std::string&, const std::string&,
                    const std::string&, const std::string&, const std::string&, nb::object, nb::object>(),
           nb::kw_only(), nb::arg("listen"), nb::arg("allow"), nb::arg("token_file"), nb::arg("tls"), nb::arg("cache"),
           nb::arg("cache_size"), nb::arg("cache_tenant"), nb::arg("check"), nb::arg("apply"))
      .def_prop_ro("address", &WorkerHandle::address)
      .def("close", &WorkerHandle::Close);
}

}  // namespace millrace::python
