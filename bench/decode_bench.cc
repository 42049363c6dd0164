// Images a second of one core: Millrace's decode to a training size, beside what libjpeg-turbo takes for the same files
// without any resizing. Rounds of all cases are interleaved and the median is printed; time is that of the thread, so
// other load matters less.
//
//   decode_bench                            on synthetic 640 x 480 photographs of 115 KB
//   decode_bench --files DIR --json         on the JPEGs of a folder, for scripts
//   decode_bench --tiles                    on the same with tiles, as `millrace pack --jpeg-tiles` adds them
//   decode_bench --cases augment_f32        only these, as an instruction counter wants it (--rounds 1)
//   decode_bench --save DIR                 only writes the synthetic ones (for bench/decode/run.py)

// jpeglib.h relies on what cstdio declares.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "decode/image.h"
#include "decode/reencode.h"
#include "decode/synth_image.h"

namespace millrace {
namespace {

struct Options {
  int count = 48;
  int kb = 115;
  int size = 224;
  int rounds = 9;
  std::string files;
  std::string save;
  std::vector<std::string> cases;
  bool tiles = false;
  bool json = false;
};

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

[[noreturn]] void Die(const absl::Status& status) {
  fmt::print(stderr, "decode_bench: {}\n", ToStd(status.message()));
  std::exit(1);
}

std::vector<std::string> LoadImages(const Options& options) {
  std::vector<std::string> images;
  if (options.files.empty()) {
    const ImageSynth synth(1);
    for (int n = 0; n < options.count; ++n) {
      auto jpeg = SynthJpeg(synth, n, uint64_t{1000} * options.kb);
      if (!jpeg.ok()) Die(jpeg.status());
      images.push_back(*std::move(jpeg));
    }
    return images;
  }
  for (const auto& entry : std::filesystem::directory_iterator(options.files)) {
    if (entry.path().extension() != ".jpg") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    images.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (images.empty()) Die(absl::NotFoundError(fmt::format("no .jpg files in {}", options.files)));
  return images;
}

void SaveImages(const std::vector<std::string>& images, const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < images.size(); ++i) {
    std::ofstream(fmt::format("{}/{:04}.jpg", folder, i), std::ios::binary) << images[i];
  }
}

/// libjpeg-turbo alone: decodes all rows to RGB at 1/denominator and drops them.
void PlainDecode(const std::string& jpeg, unsigned denominator, std::vector<uint8_t>* rows) {
  jpeg_decompress_struct d{};
  jpeg_error_mgr errors{};
  d.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&d);
  jpeg_mem_src(&d, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&d, TRUE);
  d.scale_denom = denominator;
  jpeg_start_decompress(&d);
  rows->resize(size_t{3} * d.output_width * d.output_height);
  while (d.output_scanline < d.output_height) {
    JSAMPROW row = rows->data() + size_t{3} * d.output_width * d.output_scanline;
    jpeg_read_scanlines(&d, &row, 1);
  }
  jpeg_finish_decompress(&d);
  jpeg_destroy_decompress(&d);
}

/// Entropy decoding alone, of the whole image: what no decoder of a file without tiles can leave out.
void PlainCoefficients(const std::string& jpeg) {
  jpeg_decompress_struct d{};
  jpeg_error_mgr errors{};
  d.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&d);
  jpeg_mem_src(&d, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&d, TRUE);
  jpeg_read_coefficients(&d);
  jpeg_finish_decompress(&d);
  jpeg_destroy_decompress(&d);
}

void AddTiles(std::vector<std::string>* images) {
  size_t before = 0;
  size_t after = 0;
  for (std::string& image : *images) {
    before += image.size();
    auto tiled = ReencodeImage(AsBytes(image), {.jpeg_tiles = true});
    if (!tiled.ok()) Die(tiled.status());
    if (*tiled) image = **std::move(tiled);
    after += image.size();
  }
  fmt::print(stderr, "tiles: {} bytes before, {} after\n", before, after);
}

struct Case {
  std::string id;
  std::string title;
  std::function<void(const std::string& jpeg, uint64_t key)> run;
  std::vector<double> rates;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

std::vector<Case> MakeCases(int size) {
  struct Scratch {
    std::vector<uint8_t> rows;
    ImageDecoder decoder;
    std::vector<std::byte> out;
  };
  const auto scratch = std::make_shared<Scratch>();
  const auto millrace = [&](ImageSpec spec) {
    spec.height = spec.width = size;
    return [scratch, spec](const std::string& jpeg, uint64_t key) {
      scratch->out.resize(spec.bytes());
      const absl::Status status = scratch->decoder.Decode(AsBytes(jpeg), spec, key, scratch->out);
      if (!status.ok()) Die(status);
    };
  };
  const ImageSpec floats{.dtype = DType::kF32, .layout = Layout::kNchw, .std = {0.25F, 0.25F, 0.25F}};
  ImageSpec augmented = floats;
  augmented.augment = true;
  // The shorter side becomes 256 for an output of 224, as papers have it.
  const double side = size;
  ImageSpec evaluation = floats;
  evaluation.transforms = {{.kind = ImageTransform::Kind::kResize, .numbers = {std::floor(side * 8 / 7)}},
                           {.kind = ImageTransform::Kind::kCenterCrop, .numbers = {side, side}}};
  std::vector<Case> cases;
  cases.push_back({"turbo_full",
                   "libjpeg-turbo, whole image, no resize",
                   [scratch](const std::string& jpeg, uint64_t) { PlainDecode(jpeg, 1, &scratch->rows); },
                   {}});
  cases.push_back({"entropy",
                   "libjpeg-turbo, entropy decoding alone (the ceiling of what is built on its decoder, without tiles)",
                   [](const std::string& jpeg, uint64_t) { PlainCoefficients(jpeg); },
                   {}});
  cases.push_back({"turbo_half",
                   "libjpeg-turbo, at 1/2, no resize",
                   [scratch](const std::string& jpeg, uint64_t) { PlainDecode(jpeg, 2, &scratch->rows); },
                   {}});
  cases.push_back({"center_u8", "millrace, centre crop, u8 NHWC", millrace({}), {}});
  cases.push_back({"center_f32", "millrace, centre crop, f32 NCHW", millrace(floats), {}});
  cases.push_back({"eval_f32", "millrace, Resize(8/7 of the size), CenterCrop, f32 NCHW", millrace(evaluation), {}});
  cases.push_back({"augment_u8", "millrace, random resized crop and flip, u8 NHWC", millrace({.augment = true}), {}});
  cases.push_back({"augment_f32", "millrace, random resized crop and flip, f32 NCHW", millrace(augmented), {}});
  return cases;
}

int Main(const Options& options) {
  std::vector<std::string> images = LoadImages(options);
  if (options.tiles) AddTiles(&images);
  if (!options.save.empty()) {
    SaveImages(images, options.save);
    return 0;
  }
  std::vector<Case> cases = MakeCases(options.size);
  for (const std::string& id : options.cases) {
    if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return c.id == id; })) {
      Die(absl::InvalidArgumentError(fmt::format("there is no case '{}'", id)));
    }
  }
  if (!options.cases.empty()) {
    std::erase_if(cases, [&](const Case& c) {
      return std::find(options.cases.begin(), options.cases.end(), c.id) == options.cases.end();
    });
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (Case& c : cases) {
      const double start = ThreadSeconds();
      for (size_t i = 0; i < images.size(); ++i) c.run(images[i], images.size() * round + i);
      c.rates.push_back(static_cast<double>(images.size()) / (ThreadSeconds() - start));
    }
  }
  if (options.json) {
    std::string fields;
    for (const Case& c : cases)
      fields += fmt::format("{}\"{}\": {:.1f}", fields.empty() ? "" : ", ", c.id, Median(c.rates));
    fmt::print("{{{}}}\n", fields);
    return 0;
  }
  size_t bytes = 0;
  for (const std::string& image : images) bytes += image.size();
  fmt::print("{} JPEGs of {} KB on average to {} x {}; one thread, median of {} rounds\n", images.size(),
             bytes / images.size() / 1000, options.size, options.size, options.rounds);
  const double full = Median(cases[0].rates);
  for (const Case& c : cases) {
    const double rate = Median(c.rates);
    fmt::print("{:>8.0f} img/s  {:>5.2f} x the first  {}\n", rate, rate / full, c.title);
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Options options;
  CLI::App app("Images a second of one core, beside libjpeg-turbo alone");
  app.add_option("--count", options.count, "synthetic images")->check(CLI::Range(1, 100'000));
  app.add_option("--kb", options.kb, "size of the synthetic images");
  app.add_option("--size", options.size, "side of the output");
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--files", options.files, "folder of .jpg files to use instead");
  app.add_option("--save", options.save, "write the images to this folder and stop");
  app.add_option("--cases", options.cases, "only these, separated by commas")->delimiter(',');
  app.add_flag("--json", options.json);
  app.add_flag("--tiles", options.tiles, "Add tiles to the images first");
  CLI11_PARSE(app, argc, argv);
  return millrace::Main(options);
}
