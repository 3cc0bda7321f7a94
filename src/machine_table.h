/**
 * @file machine_table.h
 * Everything a machine description may say, one line each; included more than once, with FIELD and
 * PATH_ONLY defined by the includer (so no include guard):
 *   FIELD(id, path, unit, required, smallest value, default, option name, help)
 *   PATH_ONLY(id, path, unit, required, smallest value, default, help)   no option of its own
 */
/* clang-format off */
FIELD(TCI_GPU_CAPACITY, "gpu.capacity_bytes", TCI_BYTES, REQUIRED, 1, 0, "gpu-memory", 
	"GPU memory that a program can allocate")
FIELD(TCI_GPU_FRAMEWORK, "gpu.framework_bytes", TCI_BYTES, OPTIONAL, 0, 0, "gpu-framework", 
	"GPU memory that CUDA context and framework take")
FIELD(TCI_GPU_MEMORY_RATE, "gpu.memory_bytes_per_s", TCI_RATE, REQUIRED, 1, 0, "gpu-bandwidth", 
	"peak bandwidth of the GPU's own memory")
PATH_ONLY(TCI_MEMORY_EFFICIENCY + TC_GEMM, "gpu.memory_efficiency_ppm.gemm", TCI_PPM, REQUIRED, 1, 0,
	"share of the memory bandwidth that gemm kernels reach")
PATH_ONLY(TCI_MEMORY_EFFICIENCY + TC_ATTENTION, "gpu.memory_efficiency_ppm.attention", TCI_PPM, REQUIRED, 1, 0,
	"share of the memory bandwidth that attention kernels reach")
PATH_ONLY(TCI_MEMORY_EFFICIENCY + TC_ELEMENTWISE, "gpu.memory_efficiency_ppm.elementwise", TCI_PPM, REQUIRED, 1, 0,
	"share of the memory bandwidth that elementwise kernels reach")
PATH_ONLY(TCI_MEMORY_EFFICIENCY + TC_REDUCTION, "gpu.memory_efficiency_ppm.reduction", TCI_PPM, REQUIRED, 1, 0,
	"share of the memory bandwidth that reduction kernels reach")
PATH_ONLY(TCI_MEMORY_EFFICIENCY + TC_GATHER, "gpu.memory_efficiency_ppm.gather", TCI_PPM, REQUIRED, 1, 0,
	"share of the memory bandwidth that gather kernels reach")
PATH_ONLY(TCI_MEMORY_EFFICIENCY + TC_OPTIMIZER_OP, "gpu.memory_efficiency_ppm.optimizer", TCI_PPM, REQUIRED, 1, 0,
	"share of the memory bandwidth that optimizer kernels reach")
PATH_ONLY(TCI_MEMORY_EFFICIENCY + TC_COMMUNICATION, "gpu.memory_efficiency_ppm.communication", TCI_PPM, REQUIRED, 1, 0,
	"share of the memory bandwidth that communication kernels reach")
PATH_ONLY(TCI_MEMORY_EFFICIENCY + TC_COPY, "gpu.memory_efficiency_ppm.copy", TCI_PPM, REQUIRED, 1, 0,
	"share of the memory bandwidth that copy kernels reach")
PATH_ONLY(TCI_FLOPS + 0, "gpu.flops_per_s.float32", TCI_COUNT, OPTIONAL, 1, 0,
	"peak float32 operations per second, dense")
PATH_ONLY(TCI_FLOPS + 1, "gpu.flops_per_s.float16", TCI_COUNT, OPTIONAL, 1, 0,
	"peak float16 operations per second, dense")
PATH_ONLY(TCI_FLOPS + 2, "gpu.flops_per_s.bfloat16", TCI_COUNT, OPTIONAL, 1, 0,
	"peak bfloat16 operations per second, dense")
PATH_ONLY(TCI_FLOPS + 3, "gpu.flops_per_s.float64", TCI_COUNT, OPTIONAL, 1, 0,
	"peak float64 operations per second, dense")
PATH_ONLY(TCI_FLOPS + 4, "gpu.flops_per_s.float8", TCI_COUNT, OPTIONAL, 1, 0,
	"peak float8 operations per second, dense")
PATH_ONLY(TCI_FLOPS_EFFICIENCY + TC_GEMM, "gpu.flops_efficiency_ppm.gemm", TCI_PPM, REQUIRED, 1, 0,
	"share of the peak that gemm kernels reach")
PATH_ONLY(TCI_FLOPS_EFFICIENCY + TC_ATTENTION, "gpu.flops_efficiency_ppm.attention", TCI_PPM, REQUIRED, 1, 0,
	"share of the peak that attention kernels reach")
PATH_ONLY(TCI_FLOPS_EFFICIENCY + TC_ELEMENTWISE, "gpu.flops_efficiency_ppm.elementwise", TCI_PPM, REQUIRED, 1, 0,
	"share of the peak that elementwise kernels reach")
PATH_ONLY(TCI_FLOPS_EFFICIENCY + TC_REDUCTION, "gpu.flops_efficiency_ppm.reduction", TCI_PPM, REQUIRED, 1, 0,
	"share of the peak that reduction kernels reach")
PATH_ONLY(TCI_FLOPS_EFFICIENCY + TC_GATHER, "gpu.flops_efficiency_ppm.gather", TCI_PPM, REQUIRED, 1, 0,
	"share of the peak that gather kernels reach")
PATH_ONLY(TCI_FLOPS_EFFICIENCY + TC_OPTIMIZER_OP, "gpu.flops_efficiency_ppm.optimizer", TCI_PPM, REQUIRED, 1, 0,
	"share of the peak that optimizer kernels reach")
PATH_ONLY(TCI_FLOPS_EFFICIENCY + TC_COMMUNICATION, "gpu.flops_efficiency_ppm.communication", TCI_PPM, REQUIRED, 1, 0,
	"share of the peak that communication kernels reach")
PATH_ONLY(TCI_FLOPS_EFFICIENCY + TC_COPY, "gpu.flops_efficiency_ppm.copy", TCI_PPM, REQUIRED, 1, 0,
	"share of the peak that copy kernels reach")
FIELD(TCI_LAUNCH, "gpu.launch_ns", TCI_NS, REQUIRED, 0, 0, "launch-ns", 
	"host time to issue one kernel, copy or I/O")
FIELD(TCI_HOOK, "gpu.hook_ns", TCI_NS, OPTIONAL, 0, 0, "hook-ns", 
	"host time of one hook call")
FIELD(TCI_GPU_ALLOC, "gpu.alloc_ns_per_call", TCI_NS, OPTIONAL, 0, 0, "gpu-alloc-ns", 
	"host time of one fresh device allocation")
FIELD(TCI_HOST_CAPACITY, "host.capacity_bytes", TCI_BYTES, REQUIRED, 1, 0, "cpu-memory", 
	"host memory that programs can use")
FIELD(TCI_HOST_FRAMEWORK, "host.framework_bytes", TCI_BYTES, OPTIONAL, 0, 0, "cpu-framework", 
	"host memory that operating system, Python and data loader take")
FIELD(TCI_DRAM, "host.dram_bytes_per_s", TCI_RATE, REQUIRED, 1, 0, "dram", 
	"host memory bandwidth, shared by copies, drives and CPU work")
FIELD(TCI_CORES, "host.cores", TCI_COUNT, REQUIRED, 1, 0, "cores", 
	"CPU cores that the optimizer may use")
FIELD(TCI_ADAM, "host.adam_parameters_per_s_per_core", TCI_COUNT, REQUIRED, 1, 0, "adam-rate", 
	"Adam updates per second of one core")
FIELD(TCI_STREAM, "host.stream_bytes_per_s_per_core", TCI_RATE, REQUIRED, 1, 0, "stream-rate", 
	"memory traffic of one core that converts or scans")
FIELD(TCI_PIN, "host.pin_bytes_per_s", TCI_RATE, REQUIRED, 1, 0, "pin-rate", 
	"speed of allocating pinned memory")
FIELD(TCI_PINNED_ROUNDING, "host.pinned_rounding", TCI_ROUNDING, OPTIONAL, 0, TC_PINNED_EXACT, "pinned-rounding", 
	"how the framework rounds pinned allocations: exact, pow2")
PATH_ONLY(TCI_HANDOVER + TC_HANDOVER_COMPUTE, "host.handover_ns.compute", TCI_NS, OPTIONAL, 0, 0,
	"from the end of a compute command until what waits for it on another queue has begun")
PATH_ONLY(TCI_HANDOVER + TC_HANDOVER_DRIVE, "host.handover_ns.drive", TCI_NS, OPTIONAL, 0, 0,
	"likewise from or to a drive")
PATH_ONLY(TCI_HANDOVER + TC_HANDOVER_OTHER, "host.handover_ns.other", TCI_NS, OPTIONAL, 0, 0,
	"likewise between all other queues, and from the issuing thread")
FIELD(TCI_H2D_RATE, "link.h2d.bytes_per_s", TCI_RATE, REQUIRED, 1, 0, "h2d", 
	"host to GPU, pinned memory")
FIELD(TCI_H2D_LATENCY, "link.h2d.latency_ns", TCI_NS, OPTIONAL, 0, 0, "h2d-latency-ns", 
	"time before the first byte")
FIELD(TCI_D2H_RATE, "link.d2h.bytes_per_s", TCI_RATE, REQUIRED, 1, 0, "d2h", 
	"GPU to host, pinned memory")
FIELD(TCI_D2H_LATENCY, "link.d2h.latency_ns", TCI_NS, OPTIONAL, 0, 0, "d2h-latency-ns", 
	"time before the first byte")
FIELD(TCI_DUPLEX, "link.duplex_bytes_per_s", TCI_RATE, OPTIONAL, 1, 0, "duplex", 
	"both directions together; absent: no common limit")
FIELD(TCI_PAGEABLE, "link.pageable_ppm", TCI_PPM, OPTIONAL, 1, 500000, "pageable", 
	"rate from or to unpinned memory as a share of the pinned rate")
FIELD(TCI_DRAM_WEIGHT, "link.dram_weight", TCI_COUNT, OPTIONAL, 1, 1, "dram-weight", 
	"how often a byte that is copied is read or written in host memory")
FIELD(TCI_CHUNK, "link.chunk_bytes", TCI_BYTES, OPTIONAL, 4096, 16777216, "chunk", 
	"piece size of moves over two hops")
FIELD(TCI_DRIVES, "nvme.drives", TCI_COUNT, REQUIRED, 1, 0, "nvme-drives", 
	"number of equal drives")
FIELD(TCI_STRIPED, "nvme.striped", TCI_FLAG, OPTIONAL, 0, 1, "nvme-striped", 
	"yes: one stripe set; no: a lane for each drive")
FIELD(TCI_GPU_DIRECT, "nvme.gpu_direct", TCI_FLAG, OPTIONAL, 0, 0, "gpu-direct", 
	"a direct path between drive and GPU exists")
FIELD(TCI_DRIVE_CAPACITY, "nvme.drive.capacity_bytes", TCI_BYTES, REQUIRED, 1, 0, "nvme-capacity", 
	"bytes of one drive")
FIELD(TCI_READ_RATE, "nvme.drive.read.bytes_per_s", TCI_RATE, REQUIRED, 1, 0, "nvme-read", 
	"read rate of one drive")
FIELD(TCI_READ_LATENCY, "nvme.drive.read.latency_ns", TCI_NS, OPTIONAL, 0, 0, "nvme-read-latency-ns", 
	"time before the first byte")
FIELD(TCI_WRITE_RATE, "nvme.drive.write.bytes_per_s", TCI_RATE, REQUIRED, 1, 0, "nvme-write", 
	"write rate of one drive")
FIELD(TCI_WRITE_LATENCY, "nvme.drive.write.latency_ns", TCI_NS, OPTIONAL, 0, 0, "nvme-write-latency-ns", 
	"time before the first byte")
FIELD(TCI_MIXED, "nvme.drive.mixed_bytes_per_s", TCI_RATE, OPTIONAL, 1, 0, "nvme-mixed", 
	"reads and writes of one drive together; absent: no common limit")
FIELD(TCI_SUSTAINED, "nvme.drive.sustained_write_bytes_per_s", TCI_RATE, OPTIONAL, 1, 0, "nvme-sustained", 
	"write rate of one drive once its cache is full")
FIELD(TCI_ENDURANCE, "nvme.drive.endurance_bytes", TCI_BYTES, OPTIONAL, 1, 0, "nvme-endurance", 
	"rated bytes written over the life of one drive (TBW)")
FIELD(TCI_QUEUE_DEPTH, "nvme.drive.queue_depth", TCI_COUNT, OPTIONAL, 1, 32, "nvme-queue-depth", 
	"requests kept in flight at one drive")
PATH_ONLY(TCI_LANES_H2D, "lanes.h2d", TCI_COUNT, OPTIONAL, 1, 1, 
	"copy engines host to GPU")
PATH_ONLY(TCI_LANES_D2H, "lanes.d2h", TCI_COUNT, OPTIONAL, 1, 1, 
	"copy engines GPU to host")
PATH_ONLY(TCI_LANES_READ, "lanes.nvme_read", TCI_COUNT, OPTIONAL, 1, 1, 
	"reads at a time, striped drives")
PATH_ONLY(TCI_LANES_WRITE, "lanes.nvme_write", TCI_COUNT, OPTIONAL, 1, 1, 
	"writes at a time, striped drives")
PATH_ONLY(TCI_LANES_CPU, "lanes.cpu", TCI_COUNT, OPTIONAL, 1, 1, 
	"CPU jobs at a time")
FIELD(TCI_PRICE, "price_per_hour_micro_usd", TCI_MICRO_USD, OPTIONAL, 1, 0, "price", 
	"price of the machine in US dollars per hour")
/* clang-format on */
