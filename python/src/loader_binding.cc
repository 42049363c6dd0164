#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arguments.h"
#include "batch_dict.h"
#include "bindings.h"
#include "field_options.h"
#include "loader_handle.h"
#include "loader_options.h"
#include "loader_report.h"
#include "pipeline/explain.h"

namespace millrace::python {

namespace {

std::shared_ptr<LoaderHandle> MakeLoaderHandle(
    std::vector<std::shared_ptr<DatasetHandle>> datasets, const std::optional<MixTuple>& mix, const py::int_& batch,
    const ImageTuple& image, const std::vector<FieldTuple>& fields, const std::string& image_field,
    const std::optional<std::string>& label_field, const std::string& label_kind, const std::string& bad_samples,
    const std::string& shuffle, const std::array<std::optional<py::int_>, 3>& order, const py::int_& seed,
    const py::int_& epochs, const py::int_& rank, const py::int_& world, const std::string& last,
    const std::string& memory, const std::string& digest, const std::optional<TokensTuple>& tokens,
    const std::string& token_type, int64_t pad_token, const std::string& cache, const std::string& cache_size,
    const std::string& cache_tenant, bool pin, const py::int_& local_ranks, const std::optional<WorkersTuple>& workers,
    const std::vector<std::pair<std::string, double>>& padding, bool finite_padding) {
  LoaderOptions options;
  options.image = ToImageSpec(image);
  options.fields = ToFields(fields);
  options.image_field = image_field;
  if (label_field) options.label = LabelOptions{*label_field, ValueOrThrow(LabelSpec::Parse(label_kind))};
  options.bad_samples =
      Choose<BadSamples>("bad_samples", bad_samples,
                         {{"fail", BadSamples::kFail}, {"replace", BadSamples::kReplace}, {"mask", BadSamples::kMask}});
  for (const auto& [name, value] : padding) options.padding.push_back({name, value});
  options.finite_padding = finite_padding;
  options.batch = ToNatural("batch_size", batch);
  options.shuffle = ValueOrThrow(ParseShuffle(shuffle));
  const auto natural = [](const char* name, const std::optional<py::int_>& value) {
    return value ? std::optional<uint64_t>(ToNatural(name, *value)) : std::nullopt;
  };
  options.extent = natural("extent", order[0]);
  options.window = natural("window", order[1]);
  options.lanes = natural("lanes", order[2]);
  if (mix) options.mix = ToMixOptions(*mix);
  options.seed = ToNatural("seed", seed);
  options.epochs = ToNatural("epochs", epochs);
  options.rank = ToNatural("rank", rank);
  options.world = ToNatural("world", world);
  options.last = ValueOrThrow(ParseLastBatch(last));
  options.memory_bytes = ToBytes("memory", memory);
  options.digest = Choose<DigestOf>(
      "digest", digest, {{"none", DigestOf::kNone}, {"raw", DigestOf::kRaw}, {"decoded", DigestOf::kDecoded}});
  options.token_type =
      Choose<TokenType>("dtype", token_type, {{"int32", TokenType::kInt32}, {"int64", TokenType::kInt64}});
  options.pad_token = pad_token;
  options.cache = OpenCache(datasets.front()->process(), cache, cache_size, cache_tenant);
  options.pin = pin;
  options.local_ranks = ToNatural("local_ranks", local_ranks);
  std::optional<TokenOptions> rows;
  if (tokens) rows = ToTokenOptions(*tokens);
  std::optional<ServiceOptions> service;
  if (workers) service = ToServiceOptions(*workers);
  return std::make_shared<LoaderHandle>(std::move(datasets), std::move(options), rows, std::move(service));
}

// [[(name, dtype, dims), ...], ...]
py::list ToList(const std::vector<BatchShape>& shapes) {
  py::list list;
  for (const BatchShape& shape : shapes) {
    py::list arrays;
    for (const ArrayShape& array : shape)
      arrays.append(py::make_tuple(array.name, array.dtype, py::tuple(py::cast(array.dims))));
    list.append(arrays);
  }
  return list;
}

/// (name, channels, whether they come first, mean, std), as Python gives them.
using FloatTuple = std::tuple<std::string, size_t, bool, PerChannel, PerChannel, std::string, py::dtype, py::object>;

std::vector<FloatImage> ToFloatImages(const std::vector<FloatTuple>& images) {
  std::vector<FloatImage> result;
  for (const auto& [name, channels, channels_first, mean, std, kind, element, view] : images) {
    FloatImage& image = result.emplace_back(FloatImage{.name = name, .channels = channels, .scale = {}});
    image.channels_first = channels_first;
    image.scale.Set(mean, std);
    image.element = element;
    image.view = view;
    if (kind == "f32") continue;
    image.half = kind == "f16" ? HalfType::kF16 : HalfType::kBf16;
    image.halves.emplace(image.scale, *image.half);
  }
  return result;
}

// What the rows of each table are.
py::list RowsList(const LoaderHandle& loader) {
  py::list list;
  for (const LoaderExplanation::Rows& rows : DescribeRows(loader.source())) {
    py::dict entry;
    entry["length"] = rows.length;
    entry["rows"] = rows.counts.rows;
    entry["tokens"] = rows.counts.tokens;
    entry["documents"] = rows.counts.samples;
    entry["truncated"] = rows.counts.truncated;
    entry["empty"] = rows.counts.empty;
    entry["fill"] = rows.counts.Fill(rows.length);
    list.append(entry);
  }
  return list;
}

// _core.Batches: what a `for` loop over a Loader goes through, the rest of one epoch. That all of it is native is what
// makes the position of a Loader exact: Python looks for signals between its own instructions only, so a handler that
// raises (Ctrl-C) cannot come between the step of the position and the loop's variable.
class Batches {
 public:
  Batches(std::shared_ptr<LoaderHandle> loader, HandOver hand_over)
      : loader_(std::move(loader)), converter_(std::move(hand_over)), epoch_(loader_->epoch()) {}

  // None if there is none for a while; as Next else.
  py::object Poll() {
    if (!ended_) {
      std::optional<std::optional<Batch>> polled = loader_->Poll(epoch_);
      if (!polled) return py::none();
      if (*polled) {
        slot_ = (*polled)->slot;
        ++delivered_;
        rows_ = (*polled)->size;
        const BatchShape& shape = loader_->shapes()[(*polled)->shape];
        py::object converted = converter_.Convert(shape, loader_->process(), **std::move(polled));
        loader_->AddConversion(converter_.TakeCpuTime());
        return converted;
      }
    }
    ended_ = true;
    throw py::stop_iteration();
  }

  // Address and size of the slot of the batch that Poll has given last.
  std::pair<uintptr_t, size_t> slot() const { return {reinterpret_cast<uintptr_t>(slot_.data()), slot_.size()}; }

  uint64_t delivered() const { return delivered_; }  // batches

  // Rows of that batch: the shape's, or fewer in a short last one.
  uint64_t rows() const { return rows_; }

  // The handlers of signals run while it waits. They may fork, or raise what comes out of here.
  py::object Next() {
    for (;;) {
      if (py::object batch = Poll(); !batch.is_none()) return batch;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  }

 private:
  std::shared_ptr<LoaderHandle> loader_;
  BatchConverter converter_;
  const uint64_t epoch_;
  MutableByteSpan slot_;
  uint64_t delivered_ = 0;
  uint64_t rows_ = 0;
  bool ended_ = false;
};

}  // namespace

void BindLoader(py::module_& module) {
  const py::array_t<uint8_t> first(0);  // imports what arrays need, which later would be a place for signals
  module.def("consumer_limits", &ConsumerLimits, py::arg("waited"), py::arg("seconds"));
  py::class_<Batches>(module, "Batches")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Batches::Next)
      .def("poll", &Batches::Poll)
      .def_property_readonly("delivered", &Batches::delivered)
      .def_property_readonly("slot", &Batches::slot)
      .def_property_readonly("rows", &Batches::rows);
  py::class_<LoaderCounts, std::shared_ptr<LoaderCounts>>(module, "Counts");
  using Handle = LoaderHandle;
  py::class_<Handle, std::shared_ptr<Handle>>(module, "Loader")
      .def(py::init(&MakeLoaderHandle), py::arg("datasets"), py::kw_only(), py::arg("mix"), py::arg("batch"),
           py::arg("image"), py::arg("fields"), py::arg("image_field"), py::arg("label_field"), py::arg("label_kind"),
           py::arg("bad_samples"), py::arg("shuffle"), py::arg("order"), py::arg("seed"), py::arg("epochs"),
           py::arg("rank"), py::arg("world"), py::arg("last"), py::arg("memory"), py::arg("digest"), py::arg("tokens"),
           py::arg("token_type"), py::arg("pad_token"), py::arg("cache"), py::arg("cache_size"),
           py::arg("cache_tenant"), py::arg("pin"), py::arg("local_ranks"), py::arg("workers"), py::arg("padding"),
           py::arg("finite_padding"))
      .def(
          "batches",
          [](std::shared_ptr<LoaderHandle> self, py::object convert, const std::vector<FloatTuple>& floats,
             std::vector<std::string> as_tuple) {
            HandOver hand_over{.convert = std::move(convert),
                               .padding = self->options().padding,
                               .floats = ToFloatImages(floats),
                               .as_tuple = std::move(as_tuple)};
            return Batches(std::move(self), std::move(hand_over));
          },
          py::arg("convert"), py::arg("floats") = std::vector<FloatTuple>(),
          py::arg("as_tuple") = std::vector<std::string>())
      .def("again", [](const Handle& self) { return std::make_shared<Handle>(self); })
      .def("settled", &Handle::Settled, py::arg("position"))
      .def("begin", &Handle::Begin, py::arg("position"), py::arg("epochs"), py::arg("counts"))
      .def("start", &Handle::Start)
      .def("stop", &Handle::Stop)
      .def("close", &Handle::Close)
      .def("shapes", [](const Handle& self) { return ToList(self.shapes()); })
      .def("rows", &RowsList)
      .def("counts", [](Handle& self) { return std::make_shared<LoaderCounts>(self.Report()); })
      .def("count_program_waits", &Handle::CountProgramWaits, py::arg("work"))
      .def("program_calls",
           [](Handle& self) {
             if (auto* const program = self.program()) program->Call(std::chrono::steady_clock::now());
           })
      .def(
          "program_waits",
          [](Handle& self, bool for_work) {
            if (auto* const program = self.program()) program->Begin(for_work, std::chrono::steady_clock::now());
          },
          py::arg("for_work"))
      .def("program_waited",
           [](Handle& self) {
             if (auto* const program = self.program()) program->End(std::chrono::steady_clock::now());
           })
      .def(
          "report",
          [](Handle& self, const std::shared_ptr<LoaderCounts>& counts) {
            return ToDict(counts == nullptr ? self.Report() : *counts, self.Forecast(), self.with_digest());
          },
          py::arg("counts") = py::none())
      .def_property_readonly("epoch", &Handle::epoch)
      .def_property_readonly("steps_per_epoch", &Handle::steps_per_epoch);
}

}  // namespace millrace::python
