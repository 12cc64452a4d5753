import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFilterFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.SimpleStreamFormat;
import org.apache.flink.connector.file.src.reader.StreamFormat;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;

/**
 * Joins orders and payments by id and a time bound, in one process, and prints what it measured as JSON.
 *
 * Arguments as name=value: join (interval or regular), orders, payments, state (folders and files), rows (of both
 * inputs), warm (rows of both inputs that are not timed), minutes (the bound), delay (seconds), parallelism, and settings of Flink.
 */
public final class StreamJoin {
    private static final AtomicLong ROWS_READ = new AtomicLong();
    private static volatile long warmRows;
    private static volatile long warmAt;

    /** Rows of 100 bytes: id, milliseconds, number of the row, payload. */
    static final class Records extends SimpleStreamFormat<RowData> {
        private static final int ROW_BYTES = 100;
        private static final int NUMBERS_BYTES = 24;
        private final TypeInformation<RowData> type;

        Records(TypeInformation<RowData> type) {
            this.type = type;
        }

        @Override
        public StreamFormat.Reader<RowData> createReader(Configuration settings, FSDataInputStream stream) {
            DataInputStream input = new DataInputStream(stream);
            return new StreamFormat.Reader<>() {
                private final byte[] bytes = new byte[ROW_BYTES];
                private final ByteBuffer row = ByteBuffer.wrap(bytes);

                @Override
                public RowData read() throws IOException {
                    try {
                        input.readFully(bytes);
                    } catch (EOFException end) {
                        return null;
                    }
                    count();
                    byte[] payload = new byte[ROW_BYTES - NUMBERS_BYTES];
                    System.arraycopy(bytes, NUMBERS_BYTES, payload, 0, payload.length);
                    return GenericRowData.of(
                            row.getLong(0),
                            TimestampData.fromEpochMillis(row.getLong(8)),
                            row.getLong(16),
                            StringData.fromBytes(payload));
                }

                @Override
                public void close() throws IOException {
                    input.close();
                }
            };
        }

        @Override
        public TypeInformation<RowData> getProducedType() {
            return type;
        }

        private static void count() {
            if (ROWS_READ.incrementAndGet() == warmRows) {
                warmAt = System.nanoTime();
            }
        }
    }

    /** Counts results and sums a number for each pair of rows, then drops them. */
    static final class Tally extends RichFilterFunction<RowData> {
        private static final long FACTOR = 1_000_003L;
        private static final long PRIME = 2_147_483_647L;
        private final LongCounter rows = new LongCounter();
        private final LongCounter pairs = new LongCounter();

        @Override
        public void open(OpenContext context) {
            getRuntimeContext().addAccumulator("rows", rows);
            getRuntimeContext().addAccumulator("pairs", pairs);
        }

        @Override
        public boolean filter(RowData result) {
            rows.add(1);
            pairs.add((result.getLong(0) % PRIME * FACTOR + result.getLong(1)) % PRIME);
            return false;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> given = new HashMap<>();
        Configuration settings = new Configuration();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            given.put(parts[0], parts[1]);
            if (parts[0].contains(".")) {
                settings.setString(parts[0], parts[1]);
            }
        }
        warmRows = Long.parseLong(given.get("warm"));
        int parallelism = Integer.parseInt(given.get("parallelism"));
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        addInput(environment, tables, "orders", "ordered_at", "order", given);
        addInput(environment, tables, "payments", "paid_at", "payment", given);
        boolean isRegular = given.get("join").equals("regular");
        Table joined = tables.sqlQuery(query(isRegular, given.get("minutes")));
        System.err.println(joined.explain());
        DataType type = DataTypes.ROW(
                        DataTypes.FIELD("order_row", DataTypes.BIGINT().notNull()),
                        DataTypes.FIELD("payment_row", DataTypes.BIGINT().notNull()),
                        DataTypes.FIELD("order_id", DataTypes.BIGINT().notNull()),
                        DataTypes.FIELD("ordered_at", DataTypes.TIMESTAMP_LTZ(3).notNull()),
                        DataTypes.FIELD("paid_at", DataTypes.TIMESTAMP_LTZ(3).notNull()),
                        DataTypes.FIELD("order_payload", DataTypes.STRING().notNull()),
                        DataTypes.FIELD("payment_payload", DataTypes.STRING().notNull()))
                .notNull()
                .bridgedTo(RowData.class);
        DataStream<RowData> results = tables.toDataStream(joined, type);
        results.filter(new Tally()).sinkTo(new DiscardingSink<>());
        long began = System.nanoTime();
        JobExecutionResult done = environment.execute();
        long ended = System.nanoTime();
        long rows = Long.parseLong(given.get("rows"));
        if (ROWS_READ.get() != rows) {
            throw new IllegalStateException("read " + ROWS_READ.get() + " rows instead of " + rows);
        }
        System.out.printf(
                "{\"rows\": %d, \"pairs\": %d, \"seconds\": %f, \"whole_seconds\": %f}%n",
                (long) done.getAccumulatorResult("rows"),
                (long) done.getAccumulatorResult("pairs"),
                (ended - warmAt) / 1e9,
                (ended - began) / 1e9);
    }

    private static void addInput(
            StreamExecutionEnvironment environment,
            StreamTableEnvironment tables,
            String name,
            String time,
            String prefix,
            Map<String, String> given) {
        DataType type = DataTypes.ROW(
                        DataTypes.FIELD("order_id", DataTypes.BIGINT().notNull()),
                        DataTypes.FIELD(time, DataTypes.TIMESTAMP_LTZ(3).notNull()),
                        DataTypes.FIELD(prefix + "_row", DataTypes.BIGINT().notNull()),
                        DataTypes.FIELD(prefix + "_payload", DataTypes.STRING().notNull()))
                .notNull();
        InternalTypeInfo<RowData> internal = InternalTypeInfo.of(type.getLogicalType());
        WatermarkStrategy<RowData> watermarks = WatermarkStrategy.<RowData>forBoundedOutOfOrderness(
                        Duration.ofSeconds(Long.parseLong(given.get("delay"))))
                .withTimestampAssigner((row, before) -> row.getTimestamp(1, 3).getMillisecond())
                .withWatermarkAlignment("inputs", Duration.ofMinutes(30), Duration.ofMillis(200));
        FileSource<RowData> source =
                FileSource.forRecordStreamFormat(new Records(internal), new Path(given.get(name))).build();
        DataStream<RowData> rows = environment.fromSource(source, watermarks, name).returns(internal);
        Schema schema = Schema.newBuilder()
                .column("order_id", DataTypes.BIGINT().notNull())
                .column(time, DataTypes.TIMESTAMP_LTZ(3).notNull())
                .column(prefix + "_row", DataTypes.BIGINT().notNull())
                .column(prefix + "_payload", DataTypes.STRING().notNull())
                .watermark(time, "SOURCE_WATERMARK()")
                .build();
        tables.createTemporaryView(name, rows, schema);
    }

    /** Casts take the role of event time from a column: before the join, it becomes one that keeps all rows. */
    private static String query(boolean isRegular, String minutes) {
        String cast = "CAST(%1$s AS TIMESTAMP_LTZ(3))";
        String input = isRegular
                ? "(SELECT order_id, " + cast + " AS %1$s, %2$s_row, %2$s_payload FROM %3$s)"
                : "%3$s";
        return "SELECT order_row, payment_row, o.order_id, "
                + String.format(cast, "ordered_at") + " AS ordered_at, "
                + String.format(cast, "paid_at") + " AS paid_at, order_payload, payment_payload FROM "
                + String.format(input, "ordered_at", "order", "orders") + " AS o JOIN "
                + String.format(input, "paid_at", "payment", "payments") + " AS p ON o.order_id = p.order_id"
                + " AND paid_at >= ordered_at AND paid_at <= ordered_at + INTERVAL '" + minutes + "' MINUTE";
    }

    private StreamJoin() {}
}
