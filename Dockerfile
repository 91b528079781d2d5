# One image per program, each with a single static binary.
#
#   docker build --target controller -t ghcr.io/finos/5-spot/controller:0.1.0 .
#   docker build --target agent -t ghcr.io/finos/5-spot/agent:0.1.0 .
#
# Reproducible builds and image contents: docs/development/images.md.

# By digest (of the index of all platforms), because a tag can be moved. The tag before it is for readers.
FROM docker.io/library/rust:1.95.0-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
WORKDIR /src
COPY . .
# Static, so that the image needs no C library, and without paths of the build machine.
ENV RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=/src=. --remap-path-prefix=/usr/local/cargo=cargo"
# With an explicit target, RUSTFLAGS do not apply to build scripts and procedural macros, which cannot be static.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(rustc -vV | sed -n 's/^host: //p')" && \
    cargo build --release --locked --target "$target" --bin 5spot --bin 5spot-reclaim-agent && \
    install -D -t /out "target/$target/release/5spot" "target/$target/release/5spot-reclaim-agent"

# The public CA certificates are for workload clusters whose kubeconfig has no CA.
FROM scratch AS controller
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/5spot /5spot
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/5spot"]

# The agent connects only to the API server of its own cluster, whose CA the kubelet mounts. It runs as root, because the
# kernel sends process events only to root.
FROM scratch AS agent
COPY --from=build /out/5spot-reclaim-agent /5spot-reclaim-agent
USER 0:0
ENTRYPOINT ["/5spot-reclaim-agent"]
