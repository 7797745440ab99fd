import tilelang
import tilelang.language as T
import torch

QUERIES = 64  # tune: 32, 64
KEYS = 32  # tune: 32, 64
THREADS = 128  # tune: 128, 256


@tilelang.jit(out_idx=[-1])
def attention(heads, queries, keys, width):
    @T.prim_func
    def kernel(
        q: T.Tensor((heads, queries, width), "float32"),
        k: T.Tensor((heads, keys, width), "float32"),
        v: T.Tensor((heads, keys, width), "float32"),
        out: T.Tensor((heads, queries, width), "float32"),
    ):
        with T.Kernel(T.ceildiv(queries, QUERIES), heads, threads=THREADS) as (block, head):
            query = T.alloc_shared((QUERIES, width), "float32")
            key = T.alloc_shared((KEYS, width), "float32")
            value = T.alloc_shared((KEYS, width), "float32")
            weight = T.alloc_shared((QUERIES, KEYS), "float32")
            score = T.alloc_fragment((QUERIES, KEYS), "float32")
            result = T.alloc_fragment((QUERIES, width), "float32")
            largest = T.alloc_fragment((QUERIES,), "float32")
            before = T.alloc_fragment((QUERIES,), "float32")
            total = T.alloc_fragment((QUERIES,), "float32")
            added = T.alloc_fragment((QUERIES,), "float32")
            T.copy(q[head, block * QUERIES, 0], query)
            T.fill(result, 0)
            T.fill(total, 0)
            T.fill(largest, -3e38)
            for step in T.serial(T.ceildiv(keys, KEYS)):
                T.copy(k[head, step * KEYS, 0], key)
                T.copy(v[head, step * KEYS, 0], value)
                T.clear(score)
                for i, j in T.Parallel(QUERIES, KEYS):
                    for d in T.serial(width):
                        score[i, j] += query[i, d] * key[j, d]
                for i, j in T.Parallel(QUERIES, KEYS):
                    score[i, j] = T.if_then_else(
                        step * KEYS + j < keys, score[i, j] * width**-0.5, -T.infinity("float32")
                    )
                T.copy(largest, before)
                T.reduce_max(score, largest, dim=1, clear=False)
                for i, j in T.Parallel(QUERIES, KEYS):
                    score[i, j] = T.exp(score[i, j] - largest[i])
                T.reduce_sum(score, added, dim=1)
                for i in T.Parallel(QUERIES):  # what was summed is relative to the largest score so far
                    total[i] = total[i] * T.exp(before[i] - largest[i]) + added[i]
                T.copy(score, weight)
                for i, d in T.Parallel(QUERIES, width):
                    result[i, d] *= T.exp(before[i] - largest[i])
                    for j in T.serial(KEYS):
                        result[i, d] += weight[i, j] * value[j, d]
            for i, d in T.Parallel(QUERIES, width):
                result[i, d] /= total[i]
            T.copy(result, out[head, block * QUERIES, 0])

    return kernel


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        batch, heads, queries, width = q.shape
        keys = k.shape[2]
        q, k, v = (x.reshape(batch * heads, -1, width).contiguous() for x in (q, k, v))
        return attention(batch * heads, queries, keys, width)(q, k, v).view(batch, heads, queries, width)
