# syntax=docker/dockerfile:1
# One image for each program, each with a single static binary in it.
#
#   docker build --target controller -t ghcr.io/finos/5-spot/controller:0.1.0 .
#   docker build --target agent -t ghcr.io/finos/5-spot/agent:0.1.0 .
#
# How to build the same bytes again, and what is inside: docs/development/images.md.

FROM docker.io/library/rust:1.95.0-bookworm AS build
WORKDIR /src
COPY . .
# Static, so that the image needs no C library; paths of the build machine are left out of the binary.
ENV RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=/src=. --remap-path-prefix=/usr/local/cargo=cargo"
# A target that is named keeps these flags away from build scripts and procedural macros, which cannot be static.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(rustc -vV | sed -n 's/^host: //p')" && \
    cargo build --release --locked --target "$target" --bin 5spot --bin 5spot-reclaim-agent && \
    install -D -t /out "target/$target/release/5spot" "target/$target/release/5spot-reclaim-agent"

# Certificates of public authorities, for workload clusters whose kubeconfig brings none, and nothing that can be run.
FROM gcr.io/distroless/static-debian12:nonroot AS controller
COPY --from=build /out/5spot /5spot
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/5spot"]

# It talks to the API server of its own cluster alone, whose authority the kubelet mounts. Root, because the kernel tells
# nobody else of processes.
FROM scratch AS agent
COPY --from=build /out/5spot-reclaim-agent /5spot-reclaim-agent
USER 0:0
ENTRYPOINT ["/5spot-reclaim-agent"]
