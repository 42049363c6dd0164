#include "inspect/preview.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/counted.h"
#include "base/size.h"
#include "base/waiting_budget.h"
#include "dataset/field_of_sample.h"
#include "decode/decode_memory.h"
#include "decode/image.h"
#include "inspect/read_samples.h"
#include "inspect/sample_values.h"

namespace millrace {

namespace {

class TileMaker {
 public:
  TileMaker(const Index& index, uint64_t memory_bytes) : index_(index), images_(own_, memory_bytes) {}

  SheetTile Make(const IndexedSample& sample, const absl::StatusOr<ByteSpan>& bytes) {
    SheetTile tile;
    tile.key = sample.key;
    if (!bytes.ok()) {
      tile.label = ClassOf(sample, index_);
      tile.problem = ToStd(bytes.status().message());
      return tile;
    }
    tile.label = LabelOf(sample, *bytes, index_);
    const auto image = std::find_if(sample.fields.begin(), sample.fields.end(), [this](const IndexedField& field) {
      return IsImage(field, index_.image_fields());
    });
    if (image == sample.fields.end()) {
      tile.text = DescribeFields(sample, *bytes);
    } else if (const absl::Status status = Decode(*image, *bytes, &tile); !status.ok()) {
      tile.pixels.clear();
      tile.problem = ToStd(status.message());
    }
    return tile;
  }

 private:
  absl::Status Decode(const IndexedField& field, ByteSpan bytes, SheetTile* tile) {
    ASSIGN_OR_RETURN(const ByteSpan file, ValueOf(field, bytes, &scratch_));
    ASSIGN_OR_RETURN(const ImageSize size, ReadImageSize(file));
    // Shows all of the picture, as large as it fits into the box.
    const double scale = static_cast<double>(kTileSide) / std::max(size.width, size.height);
    const auto fit = [scale](int side) {
      return std::clamp(static_cast<int>(std::lround(side * scale)), 1, kTileSide);
    };
    const ImageSpec spec{.height = fit(size.height), .width = fit(size.width)};
    tile->width = spec.width;
    tile->height = spec.height;
    tile->pixels.resize(spec.bytes());
    return decoder_.Decode(file, spec, 0, std::as_writable_bytes(std::span(tile->pixels)));
  }

  const Index& index_;
  WaitingBudget own_{DecodeMemory::kLeastRefusedBytes};  // of this thread alone, which therefore never waits
  DecodeMemory images_;
  ImageDecoder decoder_{&images_};
  std::string scratch_;
};

}  // namespace

absl::StatusOr<Preview> MakePreview(const Dataset& dataset, uint64_t samples, MemoryBudget& memory,
                                    const std::stop_token& stop) {
  const uint64_t count = std::min(samples, dataset.index().size());
  const Reservation reserved = memory.TryReserve(ContactSheetBytes(count));
  if (!reserved) {
    return absl::ResourceExhaustedError(
        fmt::format("drawing {} takes up to {} of memory, and {} of {} are in use: draw fewer with --samples",
                    Counted(count, "sample"), FormatSize(ContactSheetBytes(count)), FormatSize(memory.used()),
                    FormatSize(memory.limit())));
  }
  const SampleOrder order = SampleOrder::Spread(dataset.index().size(), count);
  TileMaker maker(dataset.index(), memory.limit());
  Preview preview;
  std::vector<SheetTile> tiles;
  RETURN_IF_ERROR(ReadSamples(dataset, order, {.begin = 0, .end = count}, memory, stop,
                              [&](const IndexedSample& sample, const absl::StatusOr<ByteSpan>& bytes) {
                                const uint64_t number = order.At(tiles.size());
                                const SheetTile& tile = tiles.emplace_back(maker.Make(sample, bytes));
                                preview.samples.push_back(
                                    {.place = PlaceOf(number, sample), .label = tile.label, .problem = tile.problem});
                              }));
  ASSIGN_OR_RETURN(preview.sheet, DrawContactSheet(tiles));
  return preview;
}

}  // namespace millrace
