RECURRENT_SLOTS = 4  # tune: 4, 2, 8
RECURRENT_GROUPS = 8  # tune: 8, 2, 1
RECURRENT_SPLIT = 1  # tune: 1, 0
# tune SPLIT_N, SPLIT_K, SPLIT_STAGES, SPLIT_GROUP, SPLIT_FP8 if: RECURRENT_SPLIT
RECURRENT_SOURCE = r"""
@recurrent.cu@"""
RECURRENT_FLAGS = ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]
RECURRENT_MOST = 8


class RecurrentCell(ctypes.Structure):
    """As `Cell` in the source: one direction of one layer."""

    pointers = ("w_ih", "w_hh", "b_ih", "b_hh", "h0", "c0", "projected", "sequence", "out", "hn", "cn", "before", "done", "source")
    numbers = ("projected_step", "projected_batch", "out_step", "out_batch", "reverse", "batch")
    _fields_ = [*((name, ctypes.c_void_p) for name in pointers), *((name, ctypes.c_longlong) for name in numbers)]

    def place(self, **tensors):
        for name, tensor in tensors.items():
            setattr(self, name, None if tensor is None else tensor.data_ptr())


@functools.cache
def recurrent_library(gates, hidden, batch):
    """The source for these sizes, compiled and loaded."""
    constants = f"GATES = {gates}, H = {hidden}, B = {batch}, SLOTS = {RECURRENT_SLOTS}, MOST = {RECURRENT_MOST}"
    source = RECURRENT_SOURCE.replace("CONSTANTS", f"constexpr int {constants};", 1)
    return cuda_library("recurrent", source, RECURRENT_FLAGS, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


def recurrent_cells(library, device):
    """Cells that the device computes at the same time; 0 where there can be none."""
    with torch.cuda.device(device):
        return library.recurrent_cells()


@functools.cache
def recurrent_plan(gates, hidden, batch, layers, device):
    """The library, how many of so many layers it computes at the same time, and sequences of a cell; None where none.

    Cells share the sequences of a layer where the device has room for more: a step waits for the products of fewer.
    """
    groups = min(RECURRENT_GROUPS, max(1, RECURRENT_MOST // layers), batch)
    while True:
        each = -(-batch // groups)
        library = recurrent_library(gates, hidden, each)
        cells, groups = recurrent_cells(library, device), -(-batch // each)
        if cells >= layers * groups or groups == 1:
            return (library, min(cells, layers), each) if cells else None
        groups = max(1, cells // layers)


def recurrent_product(x, weight, bias):
    """x [steps, sequences, numbers] times the weights of all gates, which no step waits for; large ones on pairs."""
    rows, columns = x.shape[0] * x.shape[1], weight.shape[0]
    if not RECURRENT_SPLIT or rows * columns * x.shape[2] < 2**31:
        return torch.nn.functional.linear(x, weight, bias)
    out = x.new_empty(rows, columns)
    if bias is None:
        split_mm(x.reshape(rows, -1), weight.t(), out=out)
    else:
        split_addmm(bias, x.reshape(rows, -1), weight.t(), out=out)
    return out.view(*x.shape[:2], columns)


def joined(parts):
    return None if parts[0] is None else torch.cat(parts)


class Recurrent:
    """The layers of torch's module in one launch, both directions of a layer in one; where it cannot be, as torch does.

    The products of a launch's first layer with its inputs are a product of their own, those of the others are computed
    where they are needed. Sums are of fp32.
    """

    @torch.no_grad()
    def forward(self, input, hx=None):
        gates, plan = self.weight_hh_l0.shape[0] // self.hidden_size, None
        if self.fits(input):
            together = 2 if self.bidirectional else self.num_layers
            plan = recurrent_plan(gates, self.hidden_size, self.batch_of(input), together, input.device)
        if plan is None:
            return super().forward(input, hx)
        states = (hx,) if isinstance(hx, torch.Tensor) else hx or ()
        for state in states:
            self.check_hidden_size(state, self.get_expected_hidden_size(input, None))
        out, *last = self.computed(plan, gates, input, *states)
        return out, last[0] if gates == 3 else tuple(last)

    def batch_of(self, x):
        return x.shape[0 if self.batch_first else 1]

    def fits(self, x):
        """Whether the kernel can compute it: few sequences, and weights that fit into registers."""
        if not (isinstance(x, torch.Tensor) and x.dim() == 3 and x.numel() and x.shape[2] == self.input_size):
            return False
        whole = all(one.device == x.device and one.dtype == torch.float32 for one in (x, *self._flat_weights))
        return (whole and x.is_cuda and torch.cuda.get_device_capability(x.device) == (9, 0) and self.batch_of(x) <= 16
                and self.hidden_size % 64 == 0 and self.hidden_size <= 256 and not self.proj_size
                and not (self.training and self.dropout) and all(one.data_ptr() % 16 == 0 for one in self._flat_weights))

    def computed(self, plan, gates, x, h0=None, c0=None):
        """The sequence that the last layer makes, and the last states of all layers: h and, of LSTMs only, c."""
        x = x.transpose(0, 1) if self.batch_first else x
        batch, hidden, ways = x.shape[1], self.hidden_size, 2 if self.bidirectional else 1
        names = [f"_l{layer}{way}" for layer in range(self.num_layers) for way in ("", "_reverse")[:ways]]
        weights = [[getattr(self, f"{kind}{name}", None) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
                   for name in names]
        library, together, each = plan
        together = ways if ways > 1 else together
        shape = (len(names), batch, hidden)
        states = [x.new_zeros(shape) if one is None else one.contiguous() for one in (h0, c0)[: gates - 2]]
        last = [x.new_empty(shape) for _ in states]
        for first in range(0, len(names), together):
            here = slice(first, first + together)
            parts = [[one[here] for one in kind] for kind in (states, last)]
            x = self.launched(library, each, gates, x, weights[here], *parts)
        return x.transpose(0, 1) if self.batch_first else x, *last

    def launched(self, library, each, gates, x, weights, states, last):
        """The sequence that these layers make, or both directions of one; a cell has some of the sequences."""
        (steps, batch, _), hidden, count = x.shape, self.hidden_size, len(weights)
        ways = 2 if self.bidirectional else 1
        weight, _, bias, _ = weights[0] if ways == 1 else map(joined, zip(*weights))
        projected = recurrent_product(x, weight, bias)
        out = x.new_empty(steps, batch, ways * hidden)
        groups = [slice(first, min(first + each, batch)) for first in range(0, batch, each)]
        made = [(layer, group) for layer in range(count) for group in range(len(groups))]
        sequences = x.new_empty(0 if ways > 1 else len(made) - len(groups), steps * each * hidden)
        done = torch.zeros(len(made), 16, device=x.device, dtype=torch.int32)
        cells = (RecurrentCell * RECURRENT_MOST)()
        for i, (cell, (layer, group)) in enumerate(zip(cells, made)):
            here, before = groups[group], i - len(groups)
            w_ih, w_hh, b_ih, b_hh = weights[layer]
            cell.place(w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh, h0=states[0][layer][here], hn=last[0][layer][here])
            cell.batch = here.stop - here.start
            if gates == 4:
                cell.place(c0=states[1][layer][here], cn=last[1][layer][here])
            if layer < ways:
                cell.place(projected=projected[:, here, layer * gates * hidden :])
                cell.projected_step, cell.projected_batch = projected.stride()[:2]
                cell.reverse = layer
            else:
                cell.place(source=sequences[before], before=done[before])
            if ways > 1 or layer == count - 1:
                cell.place(out=out[:, here, layer * hidden :] if ways > 1 else out[:, here])
                cell.out_step, cell.out_batch = out.stride()[:2]
            else:
                cell.place(sequence=sequences[i], done=done[i])
        with torch.cuda.device(x.device):
            stream = torch.cuda.current_stream().cuda_stream
            if status := library.recurrent(ctypes.byref(cells), len(made), steps, stream):
                raise RuntimeError(f"recurrent layers: CUDA error {status}")
        return out


class RecurrentGRU(Recurrent, torch.nn.GRU):
    """Gates r, z and n."""


class RecurrentLSTM(Recurrent, torch.nn.LSTM):
    """Gates i, f, g and o."""
